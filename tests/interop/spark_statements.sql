-- What Iceberg's Spark runtime does on tables of the service, as a client without Lakewarden.
--
-- `-- # NAME` begins a group, which has a namespace of its own. A statement ends with `;` at the end of a line; one that
-- begins with `spark.` is Python. `{t}` and `{s}` are tables of the group, `{ns}` is its namespace and `{n}` the same
-- without the catalog `{cat}`. `{snapshot K}` is the id of the Kth snapshot of `{t}`, `{time K}` a moment right after it,
-- `{location}` the location of `{t}`, `{metadata}` its metadata file, `{tmp}` a directory outside of the warehouse.
--
-- A statement shows the rows that it shows on a catalog of Iceberg. `-- runs: WHY` stands before one that runs, and shows
-- other rows; `-- refused: REASON` before one that the service refuses.

-- # Namespaces
CREATE NAMESPACE {ns}.sub COMMENT 'below';
SHOW NAMESPACES IN {ns};
ALTER NAMESPACE {ns}.sub SET PROPERTIES ('team' = 'sales');
-- runs: a catalog of Iceberg shows the location of its own warehouse
DESCRIBE NAMESPACE EXTENDED {ns}.sub;
CREATE TABLE {ns}.sub.t (id BIGINT) USING iceberg;
SHOW TABLES IN {ns}.sub;
DROP TABLE {ns}.sub.t PURGE;
DROP NAMESPACE {ns}.sub;
SHOW NAMESPACES IN {ns};
CREATE NAMESPACE IF NOT EXISTS {ns};

-- # Create and replace tables
CREATE TABLE {t} (id BIGINT NOT NULL COMMENT 'the id', data STRING, ts TIMESTAMP) USING iceberg COMMENT 'a table' PARTITIONED BY (days(ts), bucket(4, id)) TBLPROPERTIES ('team' = 'sales');
DESCRIBE TABLE {t};
-- runs: it shows governed properties and the location
DESCRIBE TABLE EXTENDED {t};
-- runs: it shows governed properties and the location
SHOW CREATE TABLE {t};
SHOW TBLPROPERTIES {t} ('team');
CREATE TABLE IF NOT EXISTS {t} (id BIGINT) USING iceberg;
INSERT INTO {t} VALUES (1, 'a', TIMESTAMP '2020-01-01 01:00:00'), (2, 'b', TIMESTAMP '2020-01-02 02:00:00');
SELECT * FROM {t} ORDER BY id;
CREATE TABLE {s} USING iceberg PARTITIONED BY (truncate(1, data)) AS SELECT id, data FROM {t};
SELECT * FROM {s} ORDER BY id;
CREATE OR REPLACE TABLE {s} USING iceberg AS SELECT id * 10 AS id, data FROM {t};
SELECT * FROM {s} ORDER BY id;
REPLACE TABLE {s} USING iceberg TBLPROPERTIES ('write.format.default' = 'parquet') AS SELECT data FROM {t};
SELECT * FROM {s} ORDER BY data;
spark.table("{t}").writeTo("{s}").using("iceberg").createOrReplace();
SELECT count(*) FROM {s};
spark.range(3).writeTo("{ns}.made").using("iceberg").tableProperty("team", "sales").create();
SELECT id FROM {ns}.made ORDER BY id;
COMMENT ON TABLE {t} IS 'another comment';
SHOW TABLES IN {ns};
ALTER TABLE {ns}.made RENAME TO {n}.renamed;
SELECT count(*) FROM {ns}.renamed;
DROP TABLE {ns}.renamed;
DROP TABLE IF EXISTS {ns}.renamed;
TRUNCATE TABLE {s};
SELECT count(*) FROM {s};
DROP TABLE {s} PURGE;

-- # Types
CREATE TABLE {t} (b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(20, 4), day DATE, ts TIMESTAMP, wall TIMESTAMP_NTZ, s STRING, bytes BINARY, st STRUCT<x: INT, y: STRUCT<z: STRING>>, li ARRAY<STRUCT<v: INT>>, m MAP<STRING, ARRAY<INT>>) USING iceberg;
INSERT INTO {t} VALUES (true, 1, 2, 3.5, 4.25, 5.1234, DATE '2020-02-29', TIMESTAMP '2020-01-01 00:00:00', TIMESTAMP_NTZ '2020-01-01 12:00:00', 'é', X'00FF', struct(1, struct('z')), array(struct(7)), map('k', array(1, 2)));
INSERT INTO {t} (i) VALUES (9);
SELECT * FROM {t} ORDER BY i;
SELECT st.y.z, li[0].v, m['k'][1] FROM {t} WHERE st.x = 1;
SELECT i FROM {t} WHERE n = 5.1234 AND day = DATE '2020-02-29' AND wall < TIMESTAMP_NTZ '2020-01-02 00:00:00';
SELECT i FROM {t} WHERE bytes = X'00FF' OR s IS NULL ORDER BY i;

-- # Insert, overwrite and delete
CREATE TABLE {t} (id BIGINT, data STRING, p STRING) USING iceberg PARTITIONED BY (p);
INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y');
INSERT INTO {t} SELECT id + 10, data, p FROM {t};
INSERT INTO {t} BY NAME SELECT 'z' AS p, 100L AS id, 'n' AS data;
SELECT * FROM {t} ORDER BY id;
INSERT OVERWRITE {t} PARTITION (p = 'y') SELECT 4, 'd';
SELECT * FROM {t} ORDER BY id;
SET spark.sql.sources.partitionOverwriteMode = dynamic;
INSERT OVERWRITE {t} VALUES (5, 'e', 'x');
RESET spark.sql.sources.partitionOverwriteMode;
SELECT * FROM {t} ORDER BY id;
spark.table("{t}").where("id = 100").writeTo("{t}").append();
spark.sql("SELECT 6L AS id, 'f' AS data, 'x' AS p").writeTo("{t}").overwritePartitions();
spark.sql("SELECT 7L AS id, 'g' AS data, 'y' AS p").writeTo("{t}").overwrite(F.col("p") == "y");
SELECT * FROM {t} ORDER BY id, data;
DELETE FROM {t} WHERE p = 'x';
DELETE FROM {t} WHERE id = 7;
SELECT * FROM {t} ORDER BY id;
DELETE FROM {t};
SELECT count(*) FROM {t};
SELECT operation FROM {t}.snapshots ORDER BY committed_at;

-- # Row changes, copy-on-write
CREATE TABLE {t} (id BIGINT, data STRING, p STRING) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('write.delete.mode' = 'copy-on-write', 'write.update.mode' = 'copy-on-write', 'write.merge.mode' = 'copy-on-write');
INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y'), (4, 'd', 'y');
CREATE TABLE {s} USING iceberg AS SELECT * FROM VALUES (2L, 'bb', 'x'), (4L, 'dd', 'y'), (9L, 'new', 'z') AS v(id, data, p);
DELETE FROM {t} WHERE id = 1;
UPDATE {t} SET data = concat(data, '!') WHERE id > 2;
SELECT * FROM {t} ORDER BY id;
MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN MATCHED AND s.id = 4 THEN DELETE WHEN MATCHED THEN UPDATE SET data = s.data WHEN NOT MATCHED THEN INSERT *;
SELECT * FROM {t} ORDER BY id;
MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN DELETE;
SELECT * FROM {t} ORDER BY id;
UPDATE {t} SET p = 'moved' WHERE id IN (SELECT id FROM {s} WHERE data = 'new');
DELETE FROM {t} WHERE EXISTS (SELECT 1 FROM {s} WHERE {s}.id = {t}.id AND {s}.data = 'bb');
SELECT * FROM {t} ORDER BY id;
SELECT content, count(*) FROM {t}.files GROUP BY content;

-- # Row changes, merge-on-read
CREATE TABLE {t} (id BIGINT, data STRING, p STRING) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read');
INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y'), (4, 'd', 'y');
CREATE TABLE {s} USING iceberg AS SELECT * FROM VALUES (2L, 'bb', 'x'), (4L, 'dd', 'y'), (9L, 'new', 'z') AS v(id, data, p);
DELETE FROM {t} WHERE id = 1;
UPDATE {t} SET data = concat(data, '!') WHERE id > 2;
SELECT * FROM {t} ORDER BY id;
MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN MATCHED AND s.id = 4 THEN DELETE WHEN MATCHED THEN UPDATE SET data = s.data WHEN NOT MATCHED THEN INSERT *;
SELECT * FROM {t} ORDER BY id;
MERGE INTO {t} t USING {s} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE THEN DELETE;
SELECT * FROM {t} ORDER BY id;
SELECT id, _pos, _spec_id, _deleted FROM {t} ORDER BY id, _pos, _deleted;
SELECT count(*) FROM {t}.data_files;
ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity' = 'partition');
DELETE FROM {t} WHERE id = 2;
SELECT * FROM {t} ORDER BY id;

-- # Time travel
CREATE TABLE {t} (id BIGINT) USING iceberg;
INSERT INTO {t} VALUES (1);
INSERT INTO {t} VALUES (2);
ALTER TABLE {t} ADD COLUMN data STRING;
INSERT INTO {t} VALUES (3, 'c');
SELECT * FROM {t} VERSION AS OF {snapshot 1};
SELECT * FROM {t} FOR SYSTEM_VERSION AS OF {snapshot 2} ORDER BY id;
SELECT * FROM {t} TIMESTAMP AS OF '{time 2}' ORDER BY id;
SELECT * FROM {ns}.t.`snapshot_id_{snapshot 1}`;
spark.read.option("versionAsOf", "{snapshot 2}").table("{t}").orderBy("id");
spark.read.option("start-snapshot-id", "{snapshot 1}").option("end-snapshot-id", "{snapshot 3}").table("{t}").orderBy("id");
spark.read.format("iceberg").option("versionAsOf", "{snapshot 1}").load("{t}");
SELECT * FROM {t}.files VERSION AS OF {snapshot 1} WHERE record_count > 5;

-- # Metadata tables
CREATE TABLE {t} (id BIGINT, data STRING, p STRING) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read');
INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'x'), (3, 'c', 'y');
DELETE FROM {t} WHERE id = 1;
SELECT snapshot_id, parent_id, is_current_ancestor FROM {t}.history ORDER BY made_current_at;
SELECT latest_snapshot_id, latest_schema_id, latest_sequence_number FROM {t}.metadata_log_entries ORDER BY timestamp;
SELECT snapshot_id, parent_id, operation, summary['added-records'] FROM {t}.snapshots ORDER BY committed_at;
SELECT status, snapshot_id, sequence_number, file_sequence_number, data_file.record_count, readable_metrics.id.lower_bound FROM {t}.entries ORDER BY sequence_number, data_file.partition.p;
SELECT content, file_format, spec_id, partition, record_count, value_counts, null_value_counts, sort_order_id, equality_ids FROM {t}.files ORDER BY content, partition.p;
SELECT partition, record_count, readable_metrics.data.upper_bound FROM {t}.data_files ORDER BY partition.p;
SELECT content, partition, record_count FROM {t}.delete_files;
SELECT content, partition_spec_id, added_snapshot_id, added_data_files_count, added_delete_files_count, partition_summaries FROM {t}.manifests ORDER BY content;
SELECT partition, spec_id, record_count, file_count, position_delete_record_count, last_updated_snapshot_id FROM {t}.partitions ORDER BY partition.p;
SELECT pos, partition, spec_id FROM {t}.position_deletes;
SELECT name, type, snapshot_id FROM {t}.refs;
SELECT content, partition, record_count FROM {t}.all_files ORDER BY content, partition.p;
SELECT partition, record_count FROM {t}.all_data_files ORDER BY partition.p;
SELECT partition, record_count FROM {t}.all_delete_files;
SELECT content, count(DISTINCT added_snapshot_id), count(DISTINCT reference_snapshot_id) FROM {t}.all_manifests GROUP BY content ORDER BY content;
SELECT status, snapshot_id, sequence_number FROM {t}.all_entries ORDER BY sequence_number;
SELECT p, _partition.p, _spec_id FROM {t} ORDER BY id;

-- # Schema evolution
CREATE TABLE {t} (id INT NOT NULL, data STRING, point STRUCT<x: INT>, tags ARRAY<STRUCT<k: STRING>>) USING iceberg;
INSERT INTO {t} VALUES (1, 'a', struct(10), array(struct('k1')));
ALTER TABLE {t} ADD COLUMN note STRING COMMENT 'a note' AFTER id;
ALTER TABLE {t} ADD COLUMNS (point.y DOUBLE, tags.element.v INT);
ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT;
ALTER TABLE {t} RENAME COLUMN data TO text;
ALTER TABLE {t} RENAME COLUMN point.x TO east;
ALTER TABLE {t} ALTER COLUMN note FIRST;
ALTER TABLE {t} ALTER COLUMN note COMMENT 'another';
INSERT INTO {t} VALUES ('n', 3000000000, 'b', struct(20, 0.5), array(struct('k2', 2)));
SELECT * FROM {t} ORDER BY id;
ALTER TABLE {t} DROP COLUMN note;
ALTER TABLE {t} ADD COLUMN note INT;
SELECT * FROM {t} ORDER BY id;
-- refused where the catalog plans: ambiguous names
SELECT id FROM {t} WHERE note IS NULL AND point.east > 15;
SELECT id FROM {t} WHERE point.east > 15 AND text = 'b';
DESCRIBE TABLE {t};
ALTER TABLE {t} SET IDENTIFIER FIELDS id;
ALTER TABLE {t} DROP IDENTIFIER FIELDS id;
ALTER TABLE {t} SET TBLPROPERTIES ('write.spark.accept-any-schema' = 'true');
spark.sql("SELECT 5L AS id, 'wide' AS text, 1.5D AS score").writeTo("{t}").option("mergeSchema", "true").append();
SELECT id, text, score FROM {t} ORDER BY id;
ALTER TABLE {t} UNSET TBLPROPERTIES ('write.spark.accept-any-schema');

-- # Schema evolution without writes
CREATE TABLE {t} (id BIGINT, a STRING, b STRING) USING iceberg;
INSERT INTO {t} VALUES (1, 'a', 'b');
ALTER TABLE {t} ADD COLUMN c INT;
SELECT * FROM {t} WHERE c IS NULL;
ALTER TABLE {t} RENAME COLUMN a TO z;
SELECT * FROM {t} WHERE z = 'a';
ALTER TABLE {t} CREATE BRANCH side;
SELECT z, c FROM {t}.branch_side WHERE z = 'a';
ALTER TABLE {t} DROP COLUMN b;
SELECT * FROM {t};
SELECT * FROM {t} VERSION AS OF {snapshot 1};

-- # Partition and sort evolution
CREATE TABLE {t} (id BIGINT NOT NULL, data STRING, ts TIMESTAMP) USING iceberg;
INSERT INTO {t} VALUES (1, 'a', TIMESTAMP '2020-01-01 00:00:00');
ALTER TABLE {t} ADD PARTITION FIELD months(ts);
INSERT INTO {t} VALUES (2, 'b', TIMESTAMP '2020-02-01 00:00:00');
ALTER TABLE {t} REPLACE PARTITION FIELD months(ts) WITH days(ts) AS day;
ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id) AS shard;
INSERT INTO {t} VALUES (3, 'c', TIMESTAMP '2020-02-01 05:00:00');
ALTER TABLE {t} DROP PARTITION FIELD shard;
ALTER TABLE {t} ADD PARTITION FIELD truncate(1, data);
INSERT INTO {t} VALUES (4, 'dd', TIMESTAMP '2020-03-01 00:00:00');
SELECT * FROM {t} ORDER BY id;
SELECT id FROM {t} WHERE ts >= TIMESTAMP '2020-02-01 00:00:00' AND data < 'd' ORDER BY id;
SELECT spec_id, record_count FROM {t}.partitions ORDER BY spec_id;
ALTER TABLE {t} WRITE ORDERED BY data DESC NULLS LAST, id;
INSERT INTO {t} VALUES (5, 'e', TIMESTAMP '2020-03-01 00:00:00'), (6, 'ee', TIMESTAMP '2020-03-01 00:00:00');
ALTER TABLE {t} WRITE LOCALLY ORDERED BY bucket(4, id);
ALTER TABLE {t} WRITE DISTRIBUTED BY PARTITION;
ALTER TABLE {t} WRITE UNORDERED;
DELETE FROM {t} WHERE day(ts) = 1 AND month(ts) = 3;
SELECT id FROM {t} ORDER BY id;

-- # Branches and tags
CREATE TABLE {t} (id BIGINT) USING iceberg;
INSERT INTO {t} VALUES (1);
ALTER TABLE {t} CREATE BRANCH audit RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS;
ALTER TABLE {t} CREATE TAG first AS OF VERSION {snapshot 1} RETAIN 30 DAYS;
INSERT INTO {t}.branch_audit VALUES (2);
INSERT INTO {t} VALUES (3);
SELECT * FROM {t}.branch_audit ORDER BY id;
SELECT * FROM {t} VERSION AS OF 'first';
spark.read.option("versionAsOf", "audit").table("{t}").orderBy("id");
UPDATE {t}.branch_audit SET id = 20 WHERE id = 2;
DELETE FROM {t}.branch_audit WHERE id = 1;
MERGE INTO {t}.branch_audit t USING (SELECT 20L AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 21;
SELECT * FROM {t}.branch_audit ORDER BY id;
SELECT * FROM {t} ORDER BY id;
ALTER TABLE {t} REPLACE TAG first AS OF VERSION {snapshot 3};
ALTER TABLE {t} CREATE OR REPLACE BRANCH audit AS OF VERSION {snapshot 3};
ALTER TABLE {t} CREATE BRANCH IF NOT EXISTS audit;
SELECT name, type, max_reference_age_in_ms, min_snapshots_to_keep FROM {t}.refs ORDER BY name;
ALTER TABLE {t} DROP TAG first;
ALTER TABLE {t} DROP BRANCH audit;
SELECT name FROM {t}.refs;

-- # Write, audit, publish
CREATE TABLE {t} (id BIGINT) USING iceberg TBLPROPERTIES ('write.wap.enabled' = 'true');
INSERT INTO {t} VALUES (1);
SET spark.wap.id = first;
INSERT INTO {t} VALUES (2);
RESET spark.wap.id;
SELECT * FROM {t} ORDER BY id;
CALL {cat}.system.cherrypick_snapshot('{n}.t', {snapshot 2});
SELECT * FROM {t} ORDER BY id;
SET spark.wap.id = second;
INSERT INTO {t} VALUES (3);
RESET spark.wap.id;
INSERT INTO {t} VALUES (4);
CALL {cat}.system.publish_changes('{n}.t', 'second');
SELECT * FROM {t} ORDER BY id;
ALTER TABLE {t} CREATE BRANCH audit;
SET spark.wap.branch = audit;
INSERT INTO {t} VALUES (5);
SELECT count(*) FROM {t};
RESET spark.wap.branch;
SELECT count(*) FROM {t};
CALL {cat}.system.fast_forward('{n}.t', 'main', 'audit');
SELECT * FROM {t} ORDER BY id;

-- # Procedures on snapshots
CREATE TABLE {t} (id BIGINT) USING iceberg;
INSERT INTO {t} VALUES (1);
INSERT INTO {t} VALUES (2);
INSERT INTO {t} VALUES (3);
CALL {cat}.system.rollback_to_snapshot('{n}.t', {snapshot 1});
CALL {cat}.system.set_current_snapshot('{n}.t', {snapshot 3});
SELECT * FROM {t} ORDER BY id;
CALL {cat}.system.rollback_to_timestamp('{n}.t', TIMESTAMP '{time 2}');
SELECT * FROM {t} ORDER BY id;
CALL {cat}.system.set_current_snapshot(table => '{n}.t', snapshot_id => {snapshot 3});
CALL {cat}.system.ancestors_of('{n}.t');
ALTER TABLE {t} CREATE TAG keep AS OF VERSION {snapshot 2};
CALL {cat}.system.expire_snapshots(table => '{n}.t', snapshot_ids => array({snapshot 1}), stream_results => true);
INSERT INTO {t} VALUES (4);
CALL {cat}.system.expire_snapshots(table => '{n}.t', older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 1, clean_expired_metadata => true);
SELECT count(*) FROM {t}.snapshots;
SELECT * FROM {t} VERSION AS OF 'keep' ORDER BY id;

-- # Procedures on files
CREATE TABLE {t} (id BIGINT, p STRING) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'commit.manifest-merge.enabled' = 'false');
INSERT INTO {t} VALUES (1, 'x'), (2, 'x'), (3, 'x'), (4, 'y');
INSERT INTO {t} VALUES (11, 'x'), (12, 'x'), (14, 'y');
INSERT INTO {t} VALUES (21, 'x'), (24, 'y');
DELETE FROM {t} WHERE id = 1;
DELETE FROM {t} WHERE id = 2;
-- runs: the sizes of files differ, since they hold the location
CALL {cat}.system.rewrite_position_delete_files(table => '{n}.t', options => map('rewrite-all', 'true'));
SELECT count(*) FROM {t}.delete_files;
-- runs: where the catalog plans, Spark keeps one more delete file
SELECT count(*) FROM {t}.manifests;
-- runs: where the catalog plans, Spark keeps one more delete file
CALL {cat}.system.rewrite_manifests('{n}.t');
SELECT content, added_data_files_count + existing_data_files_count + added_delete_files_count + existing_delete_files_count FROM {t}.manifests WHERE existing_data_files_count + existing_delete_files_count > 0 ORDER BY content;
-- runs: the sizes of files differ, since they hold the location
CALL {cat}.system.rewrite_data_files(table => '{n}.t', where => 'p = "x"', options => map('rewrite-all', 'true'));
-- runs: the sizes of files differ, since they hold the location
CALL {cat}.system.rewrite_data_files(table => '{n}.t', strategy => 'sort', sort_order => 'id DESC NULLS LAST', options => map('rewrite-all', 'true'));
-- runs: the sizes of files differ, since they hold the location
CALL {cat}.system.rewrite_data_files(table => '{n}.t', strategy => 'sort', sort_order => 'zorder(id, p)', options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'));
SELECT * FROM {t} ORDER BY id;
SELECT content, record_count FROM {t}.files ORDER BY content, record_count;
-- runs: the paths of statistics files differ
CALL {cat}.system.compute_table_stats(table => '{n}.t', columns => array('id', 'p'));
-- runs: the paths of statistics files differ
CALL {cat}.system.compute_partition_stats('{n}.t');
CALL {cat}.system.expire_snapshots(table => '{n}.t', older_than => TIMESTAMP '2999-01-01 00:00:00');
SELECT * FROM {t} ORDER BY id;
CALL {cat}.system.remove_orphan_files(table => '{n}.t', dry_run => true);

-- # Add and register files
CREATE TABLE {t} (id BIGINT, p STRING) USING iceberg;
spark.range(5, 7).selectExpr("id", "'x' AS p").write.parquet("{location}/staged");
CALL {cat}.system.add_files(table => '{n}.t', source_table => '`parquet`.`{location}/staged`');
SELECT * FROM {t} ORDER BY id;
spark.range(7, 9).selectExpr("id", "'x' AS p").write.parquet("{tmp}/outside");
-- refused: location policy
CALL {cat}.system.add_files(table => '{n}.t', source_table => '`parquet`.`{tmp}/outside`');
SELECT count(*) FROM {t} WHERE id < 7;
CREATE TABLE spark_catalog.default.source_{cat}_{n} USING parquet AS SELECT 1L AS id;
-- refused: location policy
CALL {cat}.system.snapshot('spark_catalog.default.source_{cat}_{n}', '{cat}.{n}.taken');
DROP TABLE spark_catalog.default.source_{cat}_{n};
SELECT count(*) FROM {t}.history;
SELECT count(*) FROM {t}.metadata_log_entries WHERE file = '{metadata}';
-- refused: one name a table
CALL {cat}.system.register_table('{n}.again', '{metadata}');
DROP TABLE {t};
CALL {cat}.system.register_table('{n}.t', '{metadata}');
SELECT count(*) FROM {t} WHERE id < 7;
ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.previous-versions-max' = '5', 'write.metadata.delete-after-commit.enabled' = 'true');

-- # Streaming
CREATE TABLE {t} (id BIGINT, data STRING) USING iceberg;
CREATE TABLE {s} (id BIGINT, data STRING) USING iceberg PARTITIONED BY (bucket(2, id));
INSERT INTO {t} VALUES (1, 'a'), (2, 'b');
INSERT INTO {t} VALUES (3, 'c');
-- refused where the catalog plans: streams
spark.readStream.table("{t}").writeStream.option("checkpointLocation", "{tmp}/append").option("fanout-enabled", "true").trigger(availableNow=True).toTable("{s}").awaitTermination();
SELECT * FROM {s} ORDER BY id;
INSERT INTO {t} VALUES (4, 'd');
-- refused where the catalog plans: streams
spark.readStream.option("streaming-max-files-per-micro-batch", "1").table("{t}").writeStream.option("checkpointLocation", "{tmp}/append").option("fanout-enabled", "true").trigger(availableNow=True).toTable("{s}").awaitTermination();
SELECT * FROM {s} ORDER BY id;
-- refused where the catalog plans: streams
spark.readStream.table("{t}").groupBy("data").count().selectExpr("count AS id", "data").writeStream.outputMode("complete").option("checkpointLocation", "{tmp}/complete").option("fanout-enabled", "true").trigger(availableNow=True).toTable("{s}").awaitTermination();
SELECT * FROM {s} ORDER BY data;
-- refused where the catalog plans: streams
spark.readStream.option("stream-from-timestamp", "4102444800000").table("{t}").writeStream.option("checkpointLocation", "{tmp}/late").option("fanout-enabled", "true").trigger(availableNow=True).toTable("{s}").awaitTermination();
SELECT count(*) FROM {s};

-- # Changes between snapshots
CREATE TABLE {t} (id BIGINT, data STRING) USING iceberg TBLPROPERTIES ('write.update.mode' = 'copy-on-write');
INSERT INTO {t} VALUES (1, 'a'), (2, 'b');
UPDATE {t} SET data = 'bb' WHERE id = 2;
DELETE FROM {t} WHERE id = 1;
CALL {cat}.system.create_changelog_view(table => '{n}.t', changelog_view => 'changed', net_changes => false);
SELECT id, data, _change_type, _change_ordinal, _commit_snapshot_id FROM changed ORDER BY _change_ordinal, id, _change_type;
CALL {cat}.system.create_changelog_view(table => '{n}.t', changelog_view => 'changed', identifier_columns => array('id'), compute_updates => true);
SELECT id, data, _change_type, _change_ordinal FROM changed ORDER BY _change_ordinal, id, _change_type;
CALL {cat}.system.create_changelog_view(table => '{n}.t', changelog_view => 'changed', options => map('start-snapshot-id', '{snapshot 1}', 'end-snapshot-id', '{snapshot 2}'));
SELECT id, data, _change_type FROM changed ORDER BY id, data, _change_type;
SELECT id, data, _change_type FROM {ns}.t.changes ORDER BY _change_ordinal, id, _change_type;
spark.catalog.dropTempView("changed");

-- # ORC and Avro
CREATE TABLE {t} (id BIGINT, data STRING, st STRUCT<x: INT>, li ARRAY<INT>) USING iceberg TBLPROPERTIES ('write.format.default' = 'orc', 'write.delete.mode' = 'merge-on-read');
INSERT INTO {t} VALUES (1, 'a', struct(1), array(1)), (2, 'b', struct(2), array(2, 3)), (3, NULL, NULL, NULL);
DELETE FROM {t} WHERE id = 1;
SELECT * FROM {t} ORDER BY id;
CREATE TABLE {s} (id BIGINT, data STRING, m MAP<STRING, INT>) USING iceberg PARTITIONED BY (data) TBLPROPERTIES ('write.format.default' = 'avro', 'write.delete.format.default' = 'avro', 'write.update.mode' = 'merge-on-read');
INSERT INTO {s} VALUES (1, 'a', map('k', 1)), (2, 'b', NULL);
UPDATE {s} SET data = 'c' WHERE id = 2;
SELECT * FROM {s} ORDER BY id;
SELECT content, file_format, record_count FROM {s}.files ORDER BY content, record_count;
ALTER TABLE {t} SET TBLPROPERTIES ('write.format.default' = 'parquet');
INSERT INTO {t} VALUES (4, 'd', struct(4), array());
SELECT file_format, count(*) FROM {t}.data_files GROUP BY file_format ORDER BY file_format;
SELECT t.id, s.m FROM {t} t LEFT JOIN {s} s ON t.id = s.id ORDER BY t.id;

-- # Functions and joins
CREATE TABLE {t} (id BIGINT, data STRING, ts TIMESTAMP) USING iceberg PARTITIONED BY (bucket(4, id));
INSERT INTO {t} SELECT id, concat('d', id), TIMESTAMP '2020-01-01 00:00:00' + make_interval(0, 0, 0, CAST(id AS INT)) FROM range(20);
SELECT {cat}.system.iceberg_version() IS NOT NULL;
SELECT id, {cat}.system.bucket(4, id), {cat}.system.truncate(2, data), {cat}.system.years(ts), {cat}.system.months(ts), {cat}.system.days(ts), {cat}.system.hours(ts) FROM {t} ORDER BY id;
SELECT id FROM {t} WHERE {cat}.system.bucket(4, id) = 2 ORDER BY id;
SELECT id FROM {t} WHERE {cat}.system.bucket(4, id) IN (0, 3) AND id > 3 ORDER BY id;
SELECT id FROM {t} WHERE NOT ({cat}.system.bucket(4, id) = 1 OR {cat}.system.bucket(3, id) = 1) ORDER BY id;
SELECT id FROM {t} WHERE {cat}.system.truncate(2, data) = 'd1' ORDER BY id;
SELECT id FROM {t} WHERE {cat}.system.truncate(5, id) >= 10 ORDER BY id;
SELECT id FROM {t} WHERE {cat}.system.years(ts) > 40 ORDER BY id;
SELECT id FROM {t} WHERE {cat}.system.days(ts) = DATE '2020-01-01' OR {cat}.system.hours(ts) < 300000 ORDER BY id;
DELETE FROM {t} WHERE {cat}.system.bucket(4, id) = 3;
SELECT id FROM {t} ORDER BY id;
SELECT count(*), min(id), max(data), count(DISTINCT date(ts)) FROM {t};
SET spark.sql.sources.v2.bucketing.enabled = true;
SELECT a.id FROM {t} a JOIN {t} b ON a.id = b.id WHERE b.id > 15 ORDER BY a.id;
RESET spark.sql.sources.v2.bucketing.enabled;
CACHE TABLE {t};
SELECT count(*) FROM {t};
UNCACHE TABLE {t};
REFRESH TABLE {t};

-- # Views
CREATE TABLE {t} (id BIGINT, data STRING) USING iceberg;
INSERT INTO {t} VALUES (1, 'a'), (2, 'b');
CREATE VIEW {ns}.v (number COMMENT 'the id', text) COMMENT 'a view' AS SELECT id, data FROM {t};
SELECT * FROM {ns}.v ORDER BY number;
SHOW VIEWS IN {ns};
DESCRIBE {ns}.v;
ALTER VIEW {ns}.v SET TBLPROPERTIES ('team' = 'sales');
SHOW TBLPROPERTIES {ns}.v ('team');
ALTER VIEW {ns}.v UNSET TBLPROPERTIES ('team');
CREATE OR REPLACE VIEW {ns}.v AS SELECT max(id) AS largest FROM {t};
SELECT largest FROM {ns}.v;
CREATE VIEW IF NOT EXISTS {ns}.v AS SELECT 1 AS one;
ALTER VIEW {ns}.v RENAME TO {ns}.w;
SELECT * FROM {ns}.w;
DROP VIEW {ns}.w;
DROP VIEW IF EXISTS {ns}.w;

-- # Format version
-- refused: format version
CREATE TABLE {t} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3');
CREATE TABLE {t} (id BIGINT) USING iceberg;
-- refused: format version
ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3');
-- refused: format version
CREATE TABLE {s} (v VARIANT) USING iceberg TBLPROPERTIES ('format-version' = '3');
CREATE TABLE {s} (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part) TBLPROPERTIES ('format-version' = '1');
INSERT INTO {s} VALUES (1, 'a'), (2, 'b');
INSERT INTO {s} VALUES (3, 'b');
DELETE FROM {s} WHERE id = 2;
UPDATE {s} SET part = 'c' WHERE id = 3;
ALTER TABLE {s} DROP PARTITION FIELD part;
ALTER TABLE {s} ADD COLUMN more INT;
INSERT INTO {s} VALUES (4, 'd', 4);
SELECT * FROM {s} ORDER BY id;
ALTER TABLE {s} SET TBLPROPERTIES ('format-version' = '2');
INSERT INTO {s} VALUES (5, 'e', 5);
SELECT * FROM {s} ORDER BY id;
ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '2');
INSERT INTO {t} VALUES (1);
SELECT * FROM {t};

-- # Locations
CREATE TABLE {t} (id BIGINT) USING iceberg;
ALTER TABLE {t} SET TBLPROPERTIES ('write.data.path' = 'file://{tmp}/elsewhere');
-- refused: location policy
INSERT INTO {t} VALUES (1);
ALTER TABLE {t} UNSET TBLPROPERTIES ('write.data.path');
INSERT INTO {t} VALUES (1);
SELECT * FROM {t};
CREATE TABLE {s} (id BIGINT) USING iceberg LOCATION 'file://{tmp}/apart';
INSERT INTO {s} VALUES (2);
SELECT * FROM {s};
ALTER TABLE {s} SET LOCATION 'file://{tmp}/moved';
-- refused: location policy
INSERT INTO {s} VALUES (3);
SELECT * FROM {s};

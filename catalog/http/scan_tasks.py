"""Writes plans for standard clients as JSON.

Most members of a file are the same for many files, so that the JSON is concatenated as text.

- Paths are those of the manifest: position deletes name data files by them.
- `partition` is a list in the order of the spec, values in single-value form.
- Key metadata is left out: standard clients have no keys.

Source: Iceberg REST specification, "ScanTasks", "FileScanTask", "DataFile"; Apache Iceberg's
`ContentFileParser`, which reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fastapi import Response

from catalog.iceberg.expressions import filter_json
from catalog.planning.standard_scan import StandardPlan
from policy.errors import RequestInvalid

#: The most characters of an answer: a filter and statistics can be long, and each file has them.
MAX_ANSWER: Final = 256 * 1024 * 1024

_CONTENT: Final = ("data", "position-deletes", "equality-deletes")
_READ: Final = (
    "content",
    "spec_id",
    "partition",
    "file_path",
    "file_format",
    "file_size_in_bytes",
    "record_count",
    "split_offsets",
    "sort_order_id",
    "equality_ids",
)


def planned_answer(plan: StandardPlan) -> Response:
    """Return the answer with a completed plan."""
    members = ['"status":"completed"']
    if plan.plan_id is not None:
        members.append(f'"plan-id":{json.dumps(plan.plan_id)}')
    return _answer([*members, *_tasks(plan)])


def tasks_answer(plan: StandardPlan) -> Response:
    """Return the answer with a part of a plan."""
    return _answer(_tasks(plan))


def _answer(members: Iterable[str]) -> Response:
    return Response(f"{{{','.join(members)}}}", media_type="application/json")


def _tasks(plan: StandardPlan) -> list[str]:
    """Return the members of `ScanTasks`; delete files are those that the data files refer to."""
    files, residuals = _files(plan), _residuals(plan)
    references = plan.files["deletes"].to_pylist()[: plan.data_files]
    used = sorted({number for each in references for number in each or ()})
    places = {number: place for place, number in enumerate(used)}
    size, tasks = 0, []
    for file, deletes, residual in zip(files, references, residuals, strict=False):
        refers = f',"delete-file-references":{json.dumps([places[n] for n in deletes])}' if deletes else ""
        tasks.append(f'{{"data-file":{file}{refers},"residual-filter":{residual}}}')
        size += len(tasks[-1])
        if size > MAX_ANSWER:
            raise RequestInvalid(
                f"The plan has more than {MAX_ANSWER} characters.",
                rule="plan-size",
                hint="Use a shorter filter or fewer stats-fields, or lower `planning.answer_files`.",
            )
    members = [f'"file-scan-tasks":[{",".join(tasks)}]']
    if used:
        members.insert(0, f'"delete-files":[{",".join(files[number] for number in used)}]')
    if plan.plan_tasks:
        members.append(f'"plan-tasks":{json.dumps(plan.plan_tasks)}')
    return members


def _residuals(plan: StandardPlan) -> Iterator[str]:
    """Yield the residual filter of each data file. A client can take a missing one for none."""
    texts: dict[tuple[int, str], str] = {}
    columns = (plan.files[name].to_pylist()[: plan.data_files] for name in ("spec_id", "partition"))
    for key in zip(*columns, strict=True):
        if key not in texts:
            texts[key] = "true" if plan.left is None else json.dumps(filter_json(plan.left.of(*key)))
        yield texts[key]


def _files(plan: StandardPlan) -> list[str]:
    rows = zip(*(plan.files[name].to_pylist() for name in _READ), strict=True)
    statistics = plan.statistics
    return [
        _file(*row, more=statistics[place] if statistics is not None and place < plan.data_files else None)
        for place, row in enumerate(rows)
    ]


def _file(
    content: int,
    spec_id: int,
    partition: str,
    path: str,
    form: str,
    size: int,
    records: int,
    offsets: list[int] | None,
    sort_order: int | None,
    equality_ids: list[int] | None,
    *,
    more: Mapping[str, Any] | None,
) -> str:
    text = (
        f'{{"content":"{_CONTENT[content]}","spec-id":{spec_id},"partition":{partition},'
        f'"file-path":{json.dumps(path)},"file-format":{json.dumps(form.lower())},'
        f'"file-size-in-bytes":{size},"record-count":{records}'
    )
    if offsets is not None:
        text += f',"split-offsets":{json.dumps(offsets)}'
    if sort_order is not None:
        text += f',"sort-order-id":{sort_order}'
    if equality_ids is not None:
        text += f',"equality-ids":{json.dumps(equality_ids)}'
    if more:
        text += f",{json.dumps(more)[1:-1]}"
    return f"{text}}}"

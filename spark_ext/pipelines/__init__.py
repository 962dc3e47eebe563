"""Jobs over many tables of a lake, on PySpark.

    from lakewarden import pipelines

    report = pipelines.audit(spark, tables="sales.*")
    report.write("audit.html")

A pipeline is a module or package here with a function of its name. `engine` runs it, `journal` records it.
"""

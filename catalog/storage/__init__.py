"""Reads and writes objects in file systems and object stores.

A *location* says where an object is; a `Storage` reads, creates, lists and deletes objects of one scheme;
the `StorageRouter` picks the storage by scheme; the `GuardedFileIO` lets pyiceberg read and write through
them, and only inside a table's lists.
"""

"""loadTable through the running service, one client. Budget: p50 under 10 ms."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from bench.report import Figure, figure
from bench.samples import make_table, root_of
from tests.support.lake import open_lake

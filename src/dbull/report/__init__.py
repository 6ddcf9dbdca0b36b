"""One self-contained HTML page about a model: no network, no row of the data, nothing to install."""

from dbull.report.build import build_report
from dbull.report.data import ReportData
from dbull.report.page import check_target, render_report, write_report

__all__ = ["ReportData", "build_report", "check_target", "render_report", "write_report"]

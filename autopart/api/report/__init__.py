"""`Lowered.report`: one page that shows a partitioned program; see `page.py`."""

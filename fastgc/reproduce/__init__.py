"""The papers' figures and tables, computed anew and compared with what the papers print."""

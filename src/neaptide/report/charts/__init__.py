"""Pictures of reports: charts as data, what is drawn of each report, and their files."""

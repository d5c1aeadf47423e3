"""Monitoring: Prometheus' rules, Alertmanager's routes and Grafana's dashboards, from typed code.

rule        what an alert and a recording rule are
recording   the recorded series: ETTR, goodput, shares
alerts      all alerts; trainings, platform and hardware are a file each
foreign     the metrics of others that queries may use: DCGM, node exporter, Ceph
routes      how Alertmanager groups alerts, and who hears of them
panels      what a dashboard is made of            dashboards  the six dashboards
manuals     the tables in docs/monitoring.md, the alerts in docs/runbook.md
render      all of it as files in rendered/; never edit those
"""

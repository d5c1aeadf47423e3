"""Monitoring: Prometheus' rules, Alertmanager's routes and Grafana's dashboards, from typed code.

rule        what an alert and a recording rule are
recording   the recorded series: ETTR, goodput, shares
*_alerts    all alerts: of trainings, of the platform, of hardware
foreign     the metrics of others that queries may use: DCGM, node exporter, Ceph
routes      how Alertmanager groups alerts, and who hears of them
panels      what a dashboard is made of            dashboards  the six dashboards
render      all of it as files in rendered/, the tables in docs/monitoring.md and the alerts in docs/runbook.md
"""

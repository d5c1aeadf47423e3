"""Tests of rules, routes and dashboards, with Prometheus' own tools."""

"""Stages that stay: tasks that Spark starts once for an element, and the coordinator that gives them work."""

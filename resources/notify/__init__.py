"""Notifications: tell people what happened, once each, by mail, chat or webhook."""

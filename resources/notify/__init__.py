"""Notifications: what people are notified of, once each, by mail, chat or webhook."""

"""Notifications: what people are told where they are, once each, by mail, chat or webhook."""

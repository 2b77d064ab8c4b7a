"""Amounts, reasons and JSON documents as text."""

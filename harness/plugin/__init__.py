"""The pytest plug-in: options, selection, recording, display."""

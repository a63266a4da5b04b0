"""Where processes run. A host starts, watches, meters and always cleans up; it knows nothing of trials."""

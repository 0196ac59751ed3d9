"""What every engine needs and none owns: settings, files, threads, lazy faces, odd text."""

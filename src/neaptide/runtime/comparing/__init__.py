"""Several programs beside each other: run in turns or in processes of their own, and compared with eager."""

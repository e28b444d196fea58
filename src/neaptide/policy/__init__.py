"""What hands a schedule to a step: a captured step is priced, searched, matched with a saved plan, or tried."""

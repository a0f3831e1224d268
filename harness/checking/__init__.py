"""How claims are checked: laws example by example, findings by draws, each with a control."""

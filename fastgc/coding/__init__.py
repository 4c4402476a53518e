"""What serves every code: scheme (hooks), code (verbs), rounds, formats, rules, trust."""

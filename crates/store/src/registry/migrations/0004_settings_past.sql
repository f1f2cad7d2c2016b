-- Records of settings that were replaced go when they are old: found by when they were replaced.
CREATE INDEX settings_past ON settings (changed_at) WHERE changed_at IS NOT NULL;

import { defineConfig } from 'vitest/config';

// A real browser against the real program: one file after the other, as each has a server of its own.
export default defineConfig({
  test: {
    include: ['browser/**/*.test.ts'],
    environment: 'node',
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});

import { defineConfig } from 'vitest/config';

// A real browser against the real program: each file has both for itself, so that some of them run side by side.
export default defineConfig({
  test: {
    include: ['browser/**/*.test.ts'],
    environment: 'node',
    fileParallelism: true,
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});

import { defineConfig } from 'vitest/config';

// A real browser against the real program: each file has a program for itself, so that two of them run side by side, each of the
// two in one browser and one process.
export default defineConfig({
  test: {
    include: ['browser/**/*.test.ts'],
    environment: 'node',
    fileParallelism: true,
    isolate: false,
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});

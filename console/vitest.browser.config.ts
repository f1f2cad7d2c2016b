import { defineConfig } from 'vitest/config';

// A real browser against the real program: each file has both for itself, so that some of them run side by side.
export default defineConfig({
  test: {
    include: ['browser/**/*.test.ts'],
    environment: 'node',
    fileParallelism: true,
    maxWorkers: 2,
    // On a busy machine a browser may be late for once; who works on the console hears of that, who lands something else waits for nobody.
    retry: process.env.CI ? 1 : 0,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});

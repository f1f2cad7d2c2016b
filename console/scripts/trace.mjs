// Measures the console in a browser against the program that ISOBAR names, and prints a table. Vite compiles what is imported here.
import { runnerImport } from 'vite';

const { module } = await runnerImport('./browser/trace/main.ts');
await module.trace(process.argv[2] === 'network');

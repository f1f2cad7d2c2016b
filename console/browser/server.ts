import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { front } from './front';

export const ADMIN = { name: 'admin', password: 'keep-it-cold-5' };
const READY = 'Isobar is ready: ';
const START_MS = 60_000;

/** A program with a data folder of its own, on an address of its own. */
export interface Server {
  url: string;
  /** Where it writes what it would send as e-mail. */
  mail: string;
  /** What it printed as it started. */
  said: string;
  stop(): Promise<void>;
  /** Stops it; its data stays. */
  halt(): Promise<void>;
  /** Starts it again on the same address, with the same data. */
  resume(): Promise<void>;
}

/** Starts the program that `ISOBAR` names; with `CONSOLE=dist`, behind the console that stands in `dist`. */
export async function startServer(settings: Record<string, string> = {}): Promise<Server> {
  const program = process.env.ISOBAR;
  if (!program) throw new Error('ISOBAR must name the program, built with the console');
  const folder = await mkdtemp(join(tmpdir(), 'isobar-console-'));
  let running = await launch(program, folder, '127.0.0.1:0', settings);
  const address = new URL(running.url).host;
  const before = process.env.CONSOLE === 'dist' ? await front(running.url) : null;
  return {
    url: before?.url ?? running.url,
    mail: join(folder, 'data', 'mail'),
    said: running.said,
    stop: async () => {
      before?.close();
      await end(running.child);
      await rm(folder, { recursive: true, force: true });
    },
    halt: () => end(running.child),
    resume: async () => {
      running = await launch(program, folder, address, settings);
    },
  };
}

async function launch(
  program: string,
  folder: string,
  address: string,
  settings: Record<string, string>,
): Promise<{ url: string; said: string; child: ChildProcess }> {
  const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('ISOBAR')));
  const child = spawn(program, ['serve', '--listen', address, '--data', join(folder, 'data'), '--log', 'warn'], {
    env: { ...environment, ISOBAR_ADMIN_PASSWORD: ADMIN.password, ...settings },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  const url = await new Promise<string>((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`the program did not start: ${said}`)), START_MS);
    const hear = (bytes: Buffer): void => {
      said += bytes.toString();
      const ready = said.split('\n').find((line) => line.startsWith(READY));
      if (!ready) return;
      clearTimeout(late);
      resolve(ready.slice(READY.length).trim());
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('exit', (code) => {
      clearTimeout(late);
      reject(new Error(`the program ended with ${code}: ${said}`));
    });
  });
  return { url, said, child };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await ended;
}

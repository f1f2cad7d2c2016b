import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { type IncomingMessage, type RequestListener, type ServerResponse, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Isobar } from 'isobar-client';

export const ADMIN = { name: 'admin', password: 'keep-it-cold-5' };
const READY = 'Isobar is ready: ';
const START_MS = 60_000;

/** A program with a data folder of its own. */
export interface Server {
  url: string;
  stop(): Promise<void>;
  /** Ends it as a crash does; its data stays. */
  kill(): Promise<void>;
  /** Starts it again on the same address, with the same data and these settings. */
  restart(settings?: Record<string, string>): Promise<void>;
}

/** Starts the program that `ISOBAR` names. */
export async function startServer(settings: Record<string, string> = {}): Promise<Server> {
  const folder = await mkdtemp(join(tmpdir(), 'isobar-client-'));
  const first = await launch(folder, '127.0.0.1:0', settings);
  const { url } = first;
  let { child } = first;
  return {
    url,
    stop: async () => {
      await end(child, 'SIGTERM');
      await rm(folder, { recursive: true, force: true });
    },
    kill: () => end(child, 'SIGKILL'),
    restart: async (changed = settings) => {
      ({ child } = await launch(folder, new URL(url).host, changed));
    },
  };
}

async function launch(folder: string, address: string, settings: Record<string, string>) {
  const program = process.env['ISOBAR'];
  if (!program) throw new Error('ISOBAR must name the program');
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
      if (ready) resolve(ready.slice(READY.length).trim());
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.once('exit', (code) => reject(new Error(`the program ended with ${code}: ${said}`)));
    child.once('exit', () => clearTimeout(late));
    child.stdout.once('data', () => clearTimeout(late));
  });
  return { child, url };
}

async function end(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill(signal);
  await ended;
}

/** A server of HTTP that does what a test wants of it. */
export async function serve(answer: RequestListener): Promise<{ url: string; close: () => void }> {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const close = (): void => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

/** Hands a call on to the server and returns its answer, whole. */
export async function forward(to: string, call: IncomingMessage): Promise<{ answer: IncomingMessage; body: Buffer }> {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const onward = request(to + call.url, { method: call.method, headers: call.headers }, resolve);
    onward.once('error', reject);
    call.pipe(onward);
  });
  const pieces: Buffer[] = [];
  for await (const piece of answer) pieces.push(piece as Buffer);
  return { answer, body: Buffer.concat(pieces) };
}

/** Gives an answer of the server to a client. */
export function deliver({ answer, body }: { answer: IncomingMessage; body: Buffer }, to: ServerResponse): void {
  to.writeHead(answer.statusCode ?? 502, answer.headers);
  to.end(body);
}

/** Signs the first administrator in. */
export function admin(url: string, fetch?: typeof globalThis.fetch): Promise<Isobar> {
  return Isobar.login({ baseUrl: url, ...(fetch ? { fetch } : {}) }, ADMIN.name, ADMIN.password);
}

/** Makes a project and a device in it. */
export async function makeDevice(isobar: Isobar): Promise<{ id: string; token: string; projectUuid: string }> {
  const project = await isobar.post('/v2/projects', { body: { name: 'Fridges' } });
  return isobar.post('/v2/devices', { body: { name: 'Fridge', projectUuid: project.id } });
}

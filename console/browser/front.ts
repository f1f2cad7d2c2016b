import { readFile } from 'node:fs/promises';
import { type IncomingMessage, type Server, type ServerResponse, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join, normalize } from 'node:path';

const DIST = join(import.meta.dirname, '../dist');
const TYPES: Record<string, string> = {
  css: 'text/css; charset=utf-8',
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  json: 'application/json',
  png: 'image/png',
  svg: 'image/svg+xml',
  webmanifest: 'application/manifest+json',
};

/**
 * Stands before a program and shows the console of `dist` instead of the one built into it, so that working on the console needs
 * no build of the program. Whatever else is asked goes to the program, and the pages keep the headers that the program gives them.
 */
export async function front(program: string): Promise<{ url: string; close: () => void }> {
  const upstream = new URL(program);
  const server: Server = createServer((asked, answer) => {
    const path = new URL(asked.url ?? '/', 'http://front').pathname;
    if (/^\/(v2|health|metrics)(\/|$)/.test(path)) pass(upstream, asked, answer);
    else void page(program, path, answer);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const close = (): void => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${port}`, close };
}

function pass(upstream: URL, asked: IncomingMessage, answer: ServerResponse): void {
  const { method, url, headers } = asked;
  const onward = request({ host: upstream.hostname, port: upstream.port, method, path: url, headers }, (given) => {
    answer.writeHead(given.statusCode ?? 502, given.rawHeaders);
    answer.flushHeaders();
    given.pipe(answer);
  });
  onward.on('error', () => answer.destroy());
  answer.on('close', () => onward.destroy());
  asked.pipe(onward);
}

async function page(program: string, path: string, answer: ServerResponse): Promise<void> {
  try {
    const file = path === '/' ? null : await readFile(join(DIST, normalize(path))).catch(() => null);
    const given = await fetch(program);
    const type = file ? TYPES[path.split('.').at(-1) ?? ''] : TYPES.html;
    answer.writeHead(200, {
      'content-type': type ?? 'application/octet-stream',
      'cache-control': file ? 'public, max-age=31536000, immutable' : 'no-cache',
      'content-security-policy': given.headers.get('content-security-policy') ?? '',
    });
    answer.end(file ?? (await readFile(join(DIST, 'index.html'))));
  } catch {
    answer.destroy();
  }
}

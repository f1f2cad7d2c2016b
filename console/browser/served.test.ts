import { get, type IncomingMessage } from 'node:http';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Server, startServer } from './server';

let server: Server;

beforeAll(async () => {
  server = await startServer();
});
afterAll(async () => {
  await server?.stop();
});

/** As it comes over the wire: `fetch` would unpack it. */
async function ask(
  path: string,
  headers: Record<string, string> = {},
): Promise<{ message: IncomingMessage; body: Buffer }> {
  return new Promise((resolve, reject) => {
    get(`${server.url}${path}`, { headers }, (message) => {
      const chunks: Buffer[] = [];
      message.on('data', (chunk: Buffer) => chunks.push(chunk));
      message.on('end', () => resolve({ message, body: Buffer.concat(chunks) }));
      message.on('error', reject);
    }).on('error', reject);
  });
}

async function script(): Promise<string> {
  const { body } = await ask('/');
  return /src="(\/assets\/index-[^"]+\.js)"/.exec(body.toString())?.[1] ?? '';
}

/** Width and height, as a PNG begins with them. */
function sideOf(png: Buffer): string {
  expect(png.subarray(1, 4).toString()).toBe('PNG');
  return `${png.readUInt32BE(16)}x${png.readUInt32BE(20)}`;
}

describe('the program', () => {
  it('shows the page at every address of the console, never kept unasked', async () => {
    const page = await ask('/');
    for (const path of ['/devices', '/devices/x/events?q=1', '/nowhere']) {
      expect((await ask(path)).body.equals(page.body), path).toBe(true);
    }
    const { headers } = page.message;
    expect(headers['cache-control']).toBe('no-cache');
    expect(headers['content-security-policy']).toMatch(/^default-src 'self';/);
    expect(headers['x-content-type-options']).toBe('nosniff');
    const again = await ask('/', { 'if-none-match': headers.etag ?? '' });
    expect([again.message.statusCode, again.body.length]).toEqual([304, 0]);
  });

  it('sends files with a hash for ever, as small as the browser takes them', async () => {
    const path = await script();
    const plain = await ask(path);
    expect(plain.message.headers['cache-control']).toBe('public, max-age=31536000, immutable');
    const brotli = await ask(path, { 'accept-encoding': 'gzip, br' });
    expect(brotli.message.headers['content-encoding']).toBe('br');
    expect(brotliDecompressSync(brotli.body).equals(plain.body)).toBe(true);
    const gzip = await ask(path, { 'accept-encoding': 'gzip' });
    expect(gzip.message.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(gzip.body).equals(plain.body)).toBe(true);
    expect(brotli.body.length).toBeLessThan(gzip.body.length);
  });

  it('can be installed: its page leads to a manifest, whose icons are there', async () => {
    const page = (await ask('/')).body.toString();
    const [, path = ''] = /<link rel="manifest" href="([^"]+)"/.exec(page) ?? [];
    const { message, body } = await ask(path);
    expect(message.headers['content-type']).toBe('application/manifest+json');
    const manifest = JSON.parse(body.toString()) as Record<string, string> & { icons: Record<string, string>[] };
    const { name, short_name, id, start_url, scope, display } = manifest;
    expect([name, short_name, id, start_url, scope, display].join(' ')).toBe('Isobar Isobar / / / standalone');
    for (const colour of [manifest.theme_color, manifest.background_color]) expect(colour).toMatch(/^#[0-9a-f]{6}$/);
    const pictures = [];
    for (const { src = '', type, sizes, purpose } of manifest.icons) {
      const icon = await ask(src);
      expect(icon.message.headers['content-type'], src).toBe(type);
      if (type !== 'image/png') continue;
      expect(sideOf(icon.body), src).toBe(sizes);
      pictures.push(`${purpose} ${sizes}`);
    }
    // Where browsers take no drawing to install a page by.
    expect(pictures).toEqual(['any 192x192', 'any 512x512', 'maskable 192x192', 'maskable 512x512']);
    const [, touch = ''] = /<link rel="apple-touch-icon" href="([^"]+)"/.exec(page) ?? [];
    const icon = await ask(touch);
    expect([icon.message.headers['content-type'], sideOf(icon.body)]).toEqual(['image/png', '180x180']);
  });

  it('keeps refusing what is no part of the console', async () => {
    for (const path of ['/v2', '/v2/nothing', '/health/nothing', '/assets/index-gone.js']) {
      const { message, body } = await ask(path);
      expect(message.statusCode, path).toBe(404);
      expect(JSON.parse(body.toString())).toEqual({ message: 'no such path', errors: [] });
    }
    expect((await fetch(`${server.url}/`, { method: 'POST' })).status).toBe(404);
  });
});

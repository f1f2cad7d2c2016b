import { IsobarError, asError, errorOf } from './errors.js';
import { pause } from './pause.js';

/** Bounds of every call; what is left out has its default. */
export interface Limits {
  /** Time for one attempt, its body included, in milliseconds. Default: 30,000. */
  timeoutMs?: number;
  /** Most attempts after the first. Default: 4; 0 switches retries off. */
  retries?: number;
  /** Time for all attempts and the pauses between them, in milliseconds. Default: 90,000, longer than a window of the rate limit. */
  retryWithinMs?: number;
  /** Largest answer, in bytes. Default: 128 MiB; a page of the server holds at most 64 MiB of values. */
  answerBytesMax?: number;
}

/** Sends a request once, with credentials. */
export type Send = (request: Request) => Promise<Response>;

export const DEFAULTS: Required<Limits> = {
  timeoutMs: 30_000,
  retries: 4,
  retryWithinMs: 90_000,
  answerBytesMax: 128 * 1024 * 1024,
};

/** First pause between two attempts and the longest, in milliseconds, where the server names none. */
const BACKOFF_MS = 250;
const BACKOFF_MS_MAX = 10_000;

/** The writes that the server does once for each key. It ignores the header everywhere else. */
const KEYED = /\/v2\/events\/(device|cloud)$/;
/** The write that is done once if each of its items has a key. */
const BATCH = /\/v2\/events\/device\/batch$/;
/** Statuses whose answers have no body, though some browsers show an empty one. */
const BODILESS = [204, 205, 304];
/** Reads that take what they return. */
const TAKES = /\/v2\/events\/cloud(\/next)?$/;

/** Returns a pause that grows with each attempt and differs between clients: between half of the growing bound and all of it. */
export function backoff(attempt: number): number {
  return Math.min(BACKOFF_MS * 2 ** attempt, BACKOFF_MS_MAX) * (0.5 + Math.random() / 2);
}

/**
 * Sends a request until it succeeds, is refused for good, or its bounds are reached.
 *
 * A call that the rate limit refused is repeated, for the server has done nothing. After other failures reads are, and of writes those
 * that carry an `Idempotency-Key`, which stays the same, and batches whose items all have one. Nothing else is: a write that the server
 * may have done is never sent twice.
 * @throws IsobarError for every answer that is no success
 */
export async function sendPatiently(send: Send, request: Request, limits: Required<Limits>): Promise<Response> {
  const path = new URL(request.url).pathname;
  if (request.method === 'POST' && KEYED.test(path) && !request.headers.has('idempotency-key')) {
    request.headers.set('idempotency-key', newKey());
  }
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  const isKeyed = BATCH.test(path)
    ? isKeyedBatch(await request.clone().text())
    : KEYED.test(path) && request.headers.has('idempotency-key');
  const end = performance.now() + limits.retryWithinMs;
  for (let attempt = 0; ; attempt += 1) {
    const outcome = await attemptOnce(send, request.clone(), request.signal, limits);
    if (outcome instanceof Response) return outcome;
    const mayRepeat = isKeyed || outcome.status === 429 || (isRead && !(outcome.status === 0 && TAKES.test(path)));
    const wait = Math.max((outcome.retryAfter ?? 0) * 1_000, backoff(attempt));
    const isLast = attempt >= limits.retries || performance.now() + wait > end;
    if (isLast || !mayRepeat || !outcome.isTemporary) throw outcome;
    await pause(wait, request.signal);
  }
}

/**
 * Returns the answer, or the error that may be worth another attempt. It listens to the caller's signal itself: that of a cloned request,
 * and of one that is being fetched, may miss an abort once garbage was collected (in Node).
 * @throws the reason of an abort
 */
async function attemptOnce(
  send: Send,
  request: Request,
  caller: AbortSignal,
  limits: Required<Limits>,
): Promise<Response | IsobarError> {
  const late = AbortSignal.timeout(limits.timeoutMs);
  const signal = AbortSignal.any([caller, late]);
  const stopped = new Promise<never>((_, stop) => {
    signal.addEventListener('abort', () => stop(signal.reason as Error), { once: true });
  });
  try {
    signal.throwIfAborted();
    const response = await Promise.race([send(new Request(request, { signal })), stopped]);
    return response.ok || response.status === 304 ? bounded(response, limits) : await refusalOf(response, limits);
  } catch (error) {
    if (caller.aborted) throw caller.reason;
    return late.aborted ? new IsobarError(0, `no answer came within ${limits.timeoutMs} ms`) : asError(error);
  }
}

/** Returns the error that an answer without success tells of. */
export async function refusalOf(response: Response, limits: Required<Limits>): Promise<IsobarError> {
  // A redirect could carry the credentials to another server.
  if (response.type === 'opaqueredirect' || (response.status >= 300 && response.status < 400)) {
    return new IsobarError(response.status || 302, 'the server redirects, which is not followed', [], response.headers);
  }
  return errorOf(bounded(response, limits));
}

/** Returns the same answer with a body that fails beyond the largest size. */
function bounded(response: Response, { answerBytesMax }: Required<Limits>): Response {
  if (!response.body || BODILESS.includes(response.status)) return response;
  let bytes = 0;
  const counter = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.length;
      if (bytes <= answerBytesMax) controller.enqueue(chunk);
      else controller.error(new IsobarError(response.status, `the answer is larger than ${answerBytesMax} bytes`));
    },
  });
  const { status, statusText, headers } = response;
  return new Response(response.body.pipeThrough(counter), { status, statusText, headers });
}

/** Returns true if each item of a batch has a key: the server then stores none twice. */
function isKeyedBatch(body: string): boolean {
  try {
    const items = JSON.parse(body) as unknown;
    return (
      Array.isArray(items) && items.every((item) => !!(item as { idempotencyKey?: unknown } | null)?.idempotencyKey)
    );
  } catch {
    return false;
  }
}

function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

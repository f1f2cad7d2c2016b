import createClient from 'openapi-fetch';
import type { MaybeOptionalInit } from 'openapi-fetch';
import type { RequiredKeysOf } from 'openapi-typescript-helpers';
import { IsobarError, asError } from './errors.js';
import { writeQuery } from './query.js';
import type { paths } from './schema.js';
import { Session } from './session.js';
import { type StreamItem, type StreamOptions, resumed } from './stream.js';
import { DEFAULTS, type Limits, type Send, refusalOf, sendPatiently } from './transport.js';
import type { CallOptions, Item, ListPath, Verb } from './types.js';

/** What a client is made of. Without a key or token it makes only calls that need no credentials. */
export interface Options extends Limits {
  /** Address of the server without a path: `https://isobar.example`. */
  baseUrl: string;
  /** Key of a user, from `POST /v2/users/{id}/apiKeys`. */
  apiKey?: string;
  /** Token of a device, which speaks for itself alone. */
  deviceToken?: string;
  /** What sends requests, in place of the global `fetch`. */
  fetch?: typeof globalThis.fetch;
}

/** Whom a stream listens to: a device, an organization with everything beneath it, or the caller's own. */
export type StreamScope = { deviceId: string } | { organizationId: string } | Record<string, never>;

type AnyInit = CallOptions & Record<string, unknown> & { signal?: AbortSignal | null };
type Call = (path: string, init: Record<string, unknown>) => Promise<{ data?: unknown }>;

/** Calls an Isobar server: every operation by its path, typed from the server's OpenAPI document. */
export class Isobar {
  /** Calls GET. */
  readonly get: Verb<'get'>;
  /** Calls POST. An event gets an `Idempotency-Key` unless it has one, so that it is stored once however often it is sent. */
  readonly post: Verb<'post'>;
  /** Calls PUT. */
  readonly put: Verb<'put'>;
  /** Calls PATCH. */
  readonly patch: Verb<'patch'>;
  /** Calls DELETE. */
  readonly delete: Verb<'delete'>;

  readonly #baseUrl: string;
  readonly #limits: Required<Limits>;
  readonly #send: Send;
  readonly #session: Session | undefined;

  /** Makes a client with an API key, a device's token, or none. `Isobar.login` makes one for a user with a password. */
  constructor(options: Options, session?: Session) {
    const { baseUrl, limits, fetch } = settingsOf(options);
    this.#baseUrl = baseUrl;
    this.#limits = limits;
    this.#session = session;
    this.#send = session ? (request) => session.send(request) : sender(options, fetch);
    const client = createClient<paths>({ baseUrl, redirect: 'manual', querySerializer: writeQuery });
    this.get = this.#verb(client.GET as Call) as Verb<'get'>;
    this.post = this.#verb(client.POST as Call) as Verb<'post'>;
    this.put = this.#verb(client.PUT as Call) as Verb<'put'>;
    this.patch = this.#verb(client.PATCH as Call) as Verb<'patch'>;
    this.delete = this.#verb(client.DELETE as Call) as Verb<'delete'>;
  }

  /** Signs a user in; the session renews itself for 14 days. @throws IsobarError 401 for a wrong name or password */
  static async login(
    options: Options,
    usernameOrEmail: string,
    password: string,
    signal?: AbortSignal,
  ): Promise<Isobar> {
    const session = sessionOf(options);
    await session.login(usernameOrEmail, password, signal);
    return new Isobar(options, session);
  }

  /** Takes up the session that the browser's cookie still holds, after a page was loaded anew. @throws IsobarError 401 without one */
  static async resume(options: Options): Promise<Isobar> {
    const session = sessionOf(options);
    await session.resume();
    return new Isobar(options, session);
  }

  /** Ends the session of `login`, at the server too. Does nothing for keys and tokens, which hold until they are deleted. */
  async logout(): Promise<void> {
    await this.#session?.logout();
  }

  /**
   * Yields every item of a list, page by page as they are asked for. `query.limit` is the size of a page, `query.page` the first.
   * A list that is sorted by createdAt is paged by `after`: what is made or deleted meanwhile shifts nothing.
   */
  async *list<P extends ListPath, I extends MaybeOptionalInit<paths[P], 'get'>>(
    path: P,
    ...[init]: RequiredKeysOf<I> extends never ? [(I & CallOptions)?] : [I & CallOptions]
  ): AsyncGenerator<Item<P>, void> {
    const given = (init ?? {}) as AnyInit & { params?: { query?: { page?: number; after?: string } } };
    const { page: first = 1, ...query } = given.params?.query ?? {};
    let where: { page?: number; after?: string } = query.after === undefined ? { page: first } : {};
    for (let page = first + 1; ; page += 1) {
      const params = { ...given.params, query: { ...query, ...where } };
      const answer = await (this.get as unknown as (path: P, init: unknown) => Promise<unknown>)(path, {
        ...given,
        params,
      });
      const { data, meta } = answer as { data: Item<P>[]; meta: { hasNextPage: boolean; after?: string | null } };
      yield* data;
      if (meta.after === null || !meta.hasNextPage || data.length === 0) return;
      where = meta.after === undefined ? { page } : { after: meta.after };
    }
  }

  /** Yields events and alarms as they are committed, and resumes behind the last event after a break. @throws IsobarError when refused */
  stream(scope: StreamScope = {}, options: StreamOptions = {}): AsyncGenerator<StreamItem, never> {
    const url = `${this.#baseUrl}/v2/events/stream?${new URLSearchParams(scope)}`;
    const open = async (lastEventId: string, signal: AbortSignal): Promise<Response> => {
      const headers: Record<string, string> = lastEventId ? { 'last-event-id': lastEventId } : {};
      // The time-out is that of the head: a stream has no end.
      const late = new AbortController();
      const timer = setTimeout(() => late.abort(new IsobarError(0, 'no answer came in time')), this.#limits.timeoutMs);
      const init: RequestInit = {
        headers,
        redirect: 'manual',
        cache: 'no-store',
        signal: AbortSignal.any([signal, late.signal]),
      };
      try {
        const response = await this.#send(new Request(url, init));
        if (response.ok) return response;
        throw await refusalOf(response, this.#limits);
      } finally {
        clearTimeout(timer);
      }
    };
    return resumed(open, options);
  }

  #verb(call: Call): (path: string, init?: AnyInit) => Promise<unknown> {
    return async (path, { limits, ...init } = {}) => {
      const bounds = { ...this.#limits, ...limits };
      const fetch = (request: Request): Promise<Response> => sendPatiently(this.#send, request, bounds);
      try {
        return (await call(path, { ...init, fetch })).data;
      } catch (error) {
        if (init.signal?.aborted) throw error;
        throw asError(error);
      }
    };
  }
}

function sessionOf(options: Options): Session {
  const { baseUrl, limits, fetch } = settingsOf(options);
  return new Session(baseUrl, fetch, limits);
}

function settingsOf(options: Options): { baseUrl: string; limits: Required<Limits>; fetch: typeof globalThis.fetch } {
  const url = URL.canParse(options.baseUrl) ? new URL(options.baseUrl) : null;
  if (!url || !/^https?:$/.test(url.protocol)) throw new TypeError('baseUrl must be an address that begins with http');
  if (url.username || url.password) throw new TypeError('baseUrl must hold no credentials');
  const { timeoutMs, retries, retryWithinMs, answerBytesMax } = { ...DEFAULTS, ...options };
  const limits = { timeoutMs, retries, retryWithinMs, answerBytesMax };
  const fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  return { baseUrl: url.href.replace(/\/$/, ''), limits, fetch };
}

/** Returns what sends requests with the key or token of these options. */
function sender({ apiKey, deviceToken }: Options, fetch: typeof globalThis.fetch): Send {
  if (apiKey !== undefined && deviceToken !== undefined) throw new TypeError('give apiKey or deviceToken, not both');
  const secret = apiKey ?? deviceToken;
  // A header's own complaint would quote it.
  if (secret !== undefined && !/^[\x21-\x7e]+$/.test(secret))
    throw new TypeError('a key or token has other characters');
  const header = apiKey === undefined ? 'cloud' : 'authorization';
  return (request) => {
    if (secret !== undefined) request.headers.set(header, secret);
    return fetch(request);
  };
}

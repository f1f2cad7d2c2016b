import { IsobarError } from './errors.js';
import { type AccessToken, TokenKeeper, sendWith, sessionEnded } from './tokens.js';
import { type Limits, sendPatiently } from './transport.js';

/** The cookie that renews access tokens, as the server names it. A browser keeps it by itself and shows it to nobody. */
const COOKIE = 'refreshToken=';

/** Keeps a user signed in: it holds the access token in memory and renews it by the refresh cookie. */
export class Session {
  #cookie = '';
  readonly #tokens = new TokenKeeper(
    () => this.#renew(),
    () => undefined,
  );

  constructor(
    private readonly baseUrl: string,
    private readonly fetch: typeof globalThis.fetch,
    private readonly limits: Required<Limits>,
  ) {}

  /** Signs in. @throws IsobarError 401 for a wrong name or password */
  async login(usernameOrEmail: string, password: string, signal?: AbortSignal): Promise<void> {
    const body = JSON.stringify({ usernameOrEmail, password });
    const headers = { 'content-type': 'application/json' };
    this.#tokens.set(await this.#token('/v2/auth/login', { method: 'POST', body, headers, signal: signal ?? null }));
  }

  /** Takes up the session whose cookie the browser has. @throws IsobarError 401 where it has none */
  async resume(): Promise<void> {
    if ((await this.#tokens.current()) === null) throw sessionEnded();
  }

  /** Ends the session at the server and here. */
  async logout(): Promise<void> {
    const token = await this.#tokens.current();
    if (token !== null)
      await this.#ask('/v2/auth/logout', { method: 'POST', headers: { authorization: `Bearer ${token}` } });
    this.#tokens.set(null);
    this.#cookie = '';
  }

  /** Sends a request with the session's token. Answered 401, it is sent once more with a new one. */
  send(request: Request): Promise<Response> {
    return sendWith(this.#tokens, this.fetch, request);
  }

  /** Returns a new token, or null when the server refuses the cookie. */
  async #renew(): Promise<AccessToken | null> {
    try {
      return await this.#token('/v2/auth/refreshToken', { method: 'GET', cache: 'no-store' });
    } catch (error) {
      if (error instanceof IsobarError && error.status === 401) return null;
      throw error;
    }
  }

  async #token(path: string, init: RequestInit): Promise<AccessToken> {
    const response = await this.#ask(path, init);
    const given = response.headers.getSetCookie().find((cookie) => cookie.startsWith(COOKIE));
    if (given) this.#cookie = given.split(';', 1)[0] ?? '';
    const answer = (await response.json().catch(() => null)) as Partial<AccessToken> | null;
    const { jwtToken, jwtTokenExpiry } = answer ?? {};
    if (typeof jwtToken !== 'string' || typeof jwtTokenExpiry !== 'string') {
      throw new IsobarError(response.status, 'the answer holds no token', [], response.headers);
    }
    return { jwtToken, jwtTokenExpiry };
  }

  #ask(path: string, init: RequestInit): Promise<Response> {
    const request = new Request(this.baseUrl + path, { redirect: 'manual', ...init });
    if (this.#cookie) request.headers.set('cookie', this.#cookie);
    return sendPatiently((sent) => this.fetch(sent), request, this.limits);
  }
}

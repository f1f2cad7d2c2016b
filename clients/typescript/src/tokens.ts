import { IsobarError } from './errors.js';
import { unlessAborted } from './pause.js';

/** An access token and when it ends. */
export interface AccessToken {
  jwtToken: string;
  /** RFC 3339, by the server's clock. */
  jwtTokenExpiry: string;
}

/** So long a token holds of which it cannot be read how long. */
const LIFE_UNKNOWN_MS = 60_000;

/** Renewed so long before its end, that no call meets the end on its way. */
const RENEWED_BEFORE_MS = 30_000;

/**
 * Keeps the access token, in memory alone, and renews it by the refresh cookie.
 *
 * There is one renewal at a time, and calls wait for it. A renewal that the server refuses ends the session; one that gets no answer
 * fails the calls that wait, and the session goes on.
 */
export class TokenKeeper {
  #token: AccessToken | null = null;
  /** When the token ends, as `now` counts. */
  #end = 0;
  #renewal: Promise<AccessToken | null> | null = null;

  /**
   * @param renew asks for a new token: null when the server refuses, an error when it cannot be asked
   * @param ended is told once when a session that was there has ended
   * @param renewed is told of each new token
   * @param now milliseconds that go on whatever clocks are set to: how long a token holds is told by the server, not by the clock here
   */
  constructor(
    private readonly renew: () => Promise<AccessToken | null>,
    private readonly ended: () => void,
    private readonly renewed: (token: AccessToken) => void = () => undefined,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Takes a token that was made by signing in. */
  set(token: AccessToken | null): void {
    this.#take(token);
    this.#renewal = null;
  }

  /** A token that holds for the next seconds; null when there is no session. Renews it first where it must. */
  async current(): Promise<string | null> {
    if (this.#token && this.#lasts()) return this.#token.jwtToken;
    return (await this.#renewed())?.jwtToken ?? null;
  }

  /** A token other than `refused`, which the server did not take. */
  async other(refused: string): Promise<string | null> {
    if (this.#token && this.#token.jwtToken !== refused && this.#lasts()) return this.#token.jwtToken;
    return (await this.#renewed())?.jwtToken ?? null;
  }

  #take(token: AccessToken | null, asked = this.now()): void {
    this.#token = token;
    this.#end = asked + (token ? (lifeOf(token) ?? LIFE_UNKNOWN_MS) : 0);
  }

  #lasts(): boolean {
    return this.#end - this.now() > RENEWED_BEFORE_MS;
  }

  #renewed(): Promise<AccessToken | null> {
    this.#renewal ??= this.#renewOnce();
    return this.#renewal;
  }

  async #renewOnce(): Promise<AccessToken | null> {
    const before = this.#token;
    const asked = this.now();
    try {
      const token = await this.renew();
      // Somebody signed in or out meanwhile: that is newer.
      if (this.#token !== before) return this.#token;
      this.#take(token, asked);
      if (!token && before) this.ended();
      if (token) this.renewed(token);
      return token;
    } finally {
      this.#renewal = null;
    }
  }
}

/** Sends a request with the session's token. Answered 401, it is sent once more with a new one. @throws IsobarError 401 without a session */
export async function sendWith(
  tokens: TokenKeeper,
  send: (request: Request) => Promise<Response>,
  request: Request,
): Promise<Response> {
  const again = request.clone();
  const token = await unlessAborted(tokens.current(), request.signal);
  if (token === null) throw sessionEnded();
  const response = await send(bearing(request, token));
  if (response.status !== 401) return response;
  const other = await unlessAborted(tokens.other(token), request.signal);
  if (other === null || other === token) return response;
  void response.body?.cancel();
  return send(bearing(again, other));
}

function bearing(request: Request, token: string): Request {
  request.headers.set('authorization', `Bearer ${token}`);
  return request;
}

/** Returns the error of a call for which there is no session. */
export function sessionEnded(): IsobarError {
  return new IsobarError(401, 'the session has ended');
}

/** Whose token it is. */
export function ownerOf(token: AccessToken): string | undefined {
  const { sub } = claimsOf(token);
  return typeof sub === 'string' ? sub : undefined;
}

/** How long a token holds from when it was made, in milliseconds, by the server's clock alone. */
function lifeOf(token: AccessToken): number | undefined {
  const { iat, exp } = claimsOf(token);
  return typeof iat === 'number' && typeof exp === 'number' ? (exp - iat) * 1_000 : undefined;
}

interface Claims {
  sub?: unknown;
  iat?: unknown;
  exp?: unknown;
}

/** What a token says. The server has signed it; here it is only read. */
function claimsOf({ jwtToken }: AccessToken): Claims {
  try {
    const text = atob((jwtToken.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/'));
    return (JSON.parse(text) ?? {}) as Claims;
  } catch {
    return {};
  }
}

import { Failure } from './failure';

/** An access token and when it ends. */
export interface AccessToken {
  jwtToken: string;
  /** RFC 3339. */
  jwtTokenExpiry: string;
}

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
  #renewal: Promise<AccessToken | null> | null = null;

  /**
   * @param renew asks for a new token: null when the server refuses, an error when it cannot be asked
   * @param ended is told once when a session that was there has ended
   * @param renewed is told of each new token
   * @param now the time in milliseconds
   */
  constructor(
    private readonly renew: () => Promise<AccessToken | null>,
    private readonly ended: () => void,
    private readonly renewed: (token: AccessToken) => void = () => undefined,
    private readonly now: () => number = Date.now,
  ) {}

  /** Takes a token that was made by signing in. */
  set(token: AccessToken | null): void {
    this.#token = token;
    this.#renewal = null;
  }

  /** A token that holds for the next seconds; null when there is no session. Renews it first where it must. */
  async current(): Promise<string | null> {
    if (this.#token && this.#lasts(this.#token)) return this.#token.jwtToken;
    return (await this.#renewed())?.jwtToken ?? null;
  }

  /** A token other than `refused`, which the server did not take. */
  async other(refused: string): Promise<string | null> {
    if (this.#token && this.#token.jwtToken !== refused && this.#lasts(this.#token)) return this.#token.jwtToken;
    return (await this.#renewed())?.jwtToken ?? null;
  }

  #lasts(token: AccessToken): boolean {
    return Date.parse(token.jwtTokenExpiry) - this.now() > RENEWED_BEFORE_MS;
  }

  #renewed(): Promise<AccessToken | null> {
    this.#renewal ??= this.#renewOnce();
    return this.#renewal;
  }

  async #renewOnce(): Promise<AccessToken | null> {
    const before = this.#token;
    try {
      const token = await this.renew();
      // Somebody signed in or out meanwhile: that is newer.
      if (this.#token !== before) return this.#token;
      this.#token = token;
      if (!token && before) this.ended();
      if (token) this.renewed(token);
      return token;
    } finally {
      this.#renewal = null;
    }
  }
}

/** Sends a request with the session's token. Answered 401, it is sent once more with a new one. */
export async function fetchWith(tokens: TokenKeeper, send: typeof fetch, request: Request): Promise<Response> {
  const token = await tokens.current();
  if (token === null) throw new Failure(401, 'the session has ended');
  const again = request.clone();
  const response = await send(bearing(request, token));
  if (response.status !== 401) return response;
  const other = await tokens.other(token);
  if (other === null || other === token) return response;
  return send(bearing(again, other));
}

function bearing(request: Request, token: string): Request {
  request.headers.set('authorization', `Bearer ${token}`);
  return request;
}

/** Whose token it is. The server has signed it; here it is only read. */
export function ownerOf({ jwtToken }: AccessToken): string | undefined {
  try {
    const text = atob((jwtToken.split('.')[1] ?? '').replaceAll('-', '+').replaceAll('_', '/'));
    const { sub } = JSON.parse(text) as { sub?: unknown };
    return typeof sub === 'string' ? sub : undefined;
  } catch {
    return undefined;
  }
}

import { describe, expect, it, vi } from 'vitest';
import { Failure } from './failure';
import { type AccessToken, TokenKeeper, fetchWith, ownerOf } from './tokens';

const NOW = Date.parse('2026-01-01T00:00:00Z');

/** A token of this name, which was made now and holds for so long. */
function token(name: string, seconds = 900): AccessToken {
  const claims = btoa(JSON.stringify({ iat: NOW / 1_000, exp: NOW / 1_000 + seconds })).replaceAll('=', '');
  return { jwtToken: `${name}.${claims}.s`, jwtTokenExpiry: new Date(NOW + seconds * 1_000).toISOString() };
}

/** Their names. */
function named(...jwts: (string | null)[]): (string | undefined)[] {
  return jwts.map((jwt) => jwt?.split('.')[0]);
}

function keeper(renew: () => Promise<AccessToken | null>) {
  const ended = vi.fn();
  return { ended, tokens: new TokenKeeper(renew, ended, undefined, () => NOW) };
}

describe('the access token', () => {
  it('is renewed once, however many calls need it', async () => {
    let give: (token: AccessToken) => void = () => undefined;
    const renew = vi.fn(() => new Promise<AccessToken>((resolve) => (give = resolve)));
    const { tokens } = keeper(renew);
    const calls = Promise.all([tokens.current(), tokens.current(), tokens.other('old')]);
    give(token('new'));
    expect(named(...(await calls))).toEqual(['new', 'new', 'new']);
    expect(renew).toHaveBeenCalledTimes(1);
  });

  it('is renewed before its end, not after', async () => {
    const renew = vi.fn(async () => token('new'));
    const { tokens } = keeper(renew);
    tokens.set(token('old', 60));
    expect(named(await tokens.current())).toEqual(['old']);
    tokens.set(token('old', 20));
    expect(named(await tokens.current())).toEqual(['new']);
  });

  it('is renewed once in its life, wherever the clock of the browser stands', async () => {
    for (const off of [0, 20 * 60_000, -20 * 60_000]) {
      vi.useFakeTimers({ now: NOW + off });
      const renew = vi.fn(async () => token('new'));
      const tokens = new TokenKeeper(renew, () => undefined);
      tokens.set(token('old'));
      for (const seconds of [0, 60, 800]) {
        vi.advanceTimersByTime(seconds * 1_000);
        expect(named(await tokens.current()), `${off} ms, after ${seconds} s`).toEqual(['old']);
      }
      vi.advanceTimersByTime(20_000);
      expect(named(await tokens.current(), await tokens.current())).toEqual(['new', 'new']);
      expect(renew).toHaveBeenCalledTimes(1);
      vi.useRealTimers();
    }
  });

  it('tells once that the session ended', async () => {
    const { tokens, ended } = keeper(async () => null);
    tokens.set(token('old', 10));
    expect(await Promise.all([tokens.current(), tokens.current()])).toEqual([null, null]);
    expect(ended).toHaveBeenCalledTimes(1);
    expect(await tokens.current()).toBeNull();
    expect(ended).toHaveBeenCalledTimes(1);
  });

  it('survives a renewal that got no answer', async () => {
    const renew = vi.fn<() => Promise<AccessToken | null>>().mockRejectedValueOnce(new TypeError('no network'));
    renew.mockResolvedValueOnce(token('new'));
    const { tokens, ended } = keeper(renew);
    tokens.set(token('old', 10));
    await expect(tokens.current()).rejects.toThrow('no network');
    expect(ended).not.toHaveBeenCalled();
    expect(named(await tokens.current())).toEqual(['new']);
  });

  it('says whose it is, and nothing where it cannot be read', () => {
    const claims = Buffer.from(JSON.stringify({ sub: 'ünä?>' }), 'latin1').toString('base64url');
    expect(ownerOf({ ...token('t'), jwtToken: `h.${claims}.s` })).toBe('ünä?>');
    for (const odd of ['', 'a.b', 'a.%.c', `h.${Buffer.from('[]').toString('base64url')}.s`]) {
      expect(ownerOf({ ...token('t'), jwtToken: odd })).toBeUndefined();
    }
  });

  it('of a sign-in during a renewal wins', async () => {
    let give: (token: AccessToken | null) => void = () => undefined;
    const { tokens, ended } = keeper(() => new Promise((resolve) => (give = resolve)));
    tokens.set(token('old', 10));
    const waiting = tokens.current();
    tokens.set(token('signed in'));
    give(null);
    expect(named(await waiting)).toEqual(['signed in']);
    expect(ended).not.toHaveBeenCalled();
  });
});

describe('a call', () => {
  const request = () => new Request('http://127.0.0.1/v2/devices', { method: 'POST', body: '{"name":"a"}' });

  it('that is refused is sent once more with a new token, body and all', async () => {
    const { tokens } = keeper(async () => token('new'));
    tokens.set(token('revoked'));
    const sent: string[] = [];
    const send = async (input: RequestInfo | URL): Promise<Response> => {
      const { headers } = input as Request;
      const [bearer] = named(headers.get('authorization'));
      sent.push(`${bearer} ${await (input as Request).text()}`);
      return new Response(null, { status: bearer === 'Bearer new' ? 200 : 401 });
    };
    expect((await fetchWith(tokens, send, request())).status).toBe(200);
    expect(sent).toEqual(['Bearer revoked {"name":"a"}', 'Bearer new {"name":"a"}']);
  });

  it('is not sent without a session', async () => {
    const { tokens } = keeper(async () => null);
    const send = vi.fn();
    await expect(fetchWith(tokens, send, request())).rejects.toMatchObject({ status: 401 });
    await expect(fetchWith(tokens, send, request())).rejects.toBeInstanceOf(Failure);
    expect(send).not.toHaveBeenCalled();
  });

  it('that stays refused is answered with the refusal', async () => {
    const { tokens } = keeper(async () => null);
    tokens.set(token('revoked'));
    const send = vi.fn(async () => new Response(null, { status: 401 }));
    expect((await fetchWith(tokens, send, request())).status).toBe(401);
    expect(send).toHaveBeenCalledTimes(1);
  });
});

import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { type AccessToken, TokenKeeper, ownerOf, sendWith } from '../dist/tokens.js';

const NOW = Date.parse('2026-01-01T00:00:00Z');

/** Returns a token of this name, which was made now and holds for so long. */
function token(name: string, seconds = 900): AccessToken {
  const claims = Buffer.from(JSON.stringify({ iat: NOW / 1_000, exp: NOW / 1_000 + seconds })).toString('base64url');
  return { jwtToken: `${name}.${claims}.s`, jwtTokenExpiry: new Date(NOW + seconds * 1_000).toISOString() };
}

/** Returns the names of tokens. */
function named(...jwts: (string | null)[]): (string | undefined)[] {
  return jwts.map((jwt) => jwt?.split('.')[0]);
}

/** Makes a keeper, and counts how often it renews and how often its session ends. */
function keeper(renew: () => Promise<AccessToken | null>) {
  const calls = { renewed: 0, ended: 0 };
  const counted = (): Promise<AccessToken | null> => {
    calls.renewed += 1;
    return renew();
  };
  const tokens = new TokenKeeper(
    counted,
    () => (calls.ended += 1),
    () => undefined,
    () => NOW,
  );
  return { calls, tokens };
}

test('token is renewed once for all calls that wait', async () => {
  let give: (token: AccessToken) => void = () => undefined;
  const { tokens, calls } = keeper(() => new Promise((resolve) => (give = resolve)));
  const waiting = Promise.all([tokens.current(), tokens.current(), tokens.other('old')]);
  give(token('new'));
  assert.deepEqual(named(...(await waiting)), ['new', 'new', 'new']);
  assert.equal(calls.renewed, 1);
});

test('token is renewed before its end', async () => {
  const { tokens } = keeper(async () => token('new'));
  tokens.set(token('old', 60));
  assert.deepEqual(named(await tokens.current()), ['old']);
  tokens.set(token('old', 20));
  assert.deepEqual(named(await tokens.current()), ['new']);
});

test('token is renewed once in its life with a wrong clock', async () => {
  for (const off of [0, 20 * 60_000, -20 * 60_000]) {
    mock.timers.enable({ apis: ['Date'], now: NOW + off });
    let milliseconds = 0;
    mock.method(performance, 'now', () => milliseconds);
    let renewals = 0;
    const renew = async (): Promise<AccessToken> => {
      renewals += 1;
      return token('new');
    };
    const tokens = new TokenKeeper(renew, () => undefined);
    tokens.set(token('old'));
    for (const seconds of [0, 60, 800]) {
      milliseconds += seconds * 1_000;
      assert.deepEqual(named(await tokens.current()), ['old'], `${off} ms, after ${seconds} s`);
    }
    milliseconds += 20_000;
    assert.deepEqual(named(await tokens.current(), await tokens.current()), ['new', 'new']);
    assert.equal(renewals, 1);
    mock.restoreAll();
    mock.timers.reset();
  }
});

test('session that ends is told of once', async () => {
  const { tokens, calls } = keeper(async () => null);
  tokens.set(token('old', 10));
  assert.deepEqual(await Promise.all([tokens.current(), tokens.current()]), [null, null]);
  assert.equal(calls.ended, 1);
  assert.equal(await tokens.current(), null);
  assert.equal(calls.ended, 1);
});

test('session survives a renewal without an answer', async () => {
  const { tokens, calls } = keeper(async () => {
    if (calls.renewed === 1) throw new TypeError('no network');
    return token('new');
  });
  tokens.set(token('old', 10));
  await assert.rejects(tokens.current(), /no network/);
  assert.equal(calls.ended, 0);
  assert.deepEqual(named(await tokens.current()), ['new']);
});

test('sign-in during a renewal wins', async () => {
  let give: (token: AccessToken | null) => void = () => undefined;
  const { tokens, calls } = keeper(() => new Promise((resolve) => (give = resolve)));
  tokens.set(token('old', 10));
  const waiting = tokens.current();
  tokens.set(token('signed in'));
  give(null);
  assert.deepEqual(named(await waiting), ['signed in']);
  assert.equal(calls.ended, 0);
});

test('owner of a token that cannot be read is unknown', () => {
  const claims = Buffer.from(JSON.stringify({ sub: 'ünä?>' }), 'latin1').toString('base64url');
  assert.equal(ownerOf({ ...token('t'), jwtToken: `h.${claims}.s` }), 'ünä?>');
  for (const odd of ['', 'a.b', 'a.%.c', `h.${Buffer.from('[]').toString('base64url')}.s`]) {
    assert.equal(ownerOf({ ...token('t'), jwtToken: odd }), undefined);
  }
});

/** Makes a call that has a body. */
function call(): Request {
  return new Request('http://127.0.0.1/v2/devices', { method: 'POST', body: '{"name":"a"}' });
}

test('refused call is sent once more with a new token', async () => {
  const { tokens } = keeper(async () => token('new'));
  tokens.set(token('revoked'));
  const sent: string[] = [];
  const send = async (request: Request): Promise<Response> => {
    const [bearer] = named(request.headers.get('authorization'));
    sent.push(`${bearer} ${await request.text()}`);
    return new Response(null, { status: bearer === 'Bearer new' ? 200 : 401 });
  };
  assert.equal((await sendWith(tokens, send, call())).status, 200);
  assert.deepEqual(sent, ['Bearer revoked {"name":"a"}', 'Bearer new {"name":"a"}']);
});

test('call without a session is not sent', async () => {
  const { tokens } = keeper(async () => null);
  const send = (): Promise<Response> => assert.fail('it was sent');
  await assert.rejects(sendWith(tokens, send, call()), { name: 'IsobarError', status: 401 });
});

test('call that stays refused returns the refusal', async () => {
  const { tokens } = keeper(async () => null);
  tokens.set(token('revoked'));
  let sent = 0;
  const send = async (): Promise<Response> => {
    sent += 1;
    return new Response(null, { status: 401 });
  };
  assert.equal((await sendWith(tokens, send, call())).status, 401);
  assert.equal(sent, 1);
});

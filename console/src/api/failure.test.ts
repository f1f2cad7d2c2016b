import { IsobarError } from 'isobar-client/errors';
import { describe, expect, it } from 'vitest';
import { failureWords } from '../lib/words';
import { Failure, OWN_FAULT, arrived, asFailure, failureOf } from './failure';

describe('a failure', () => {
  it('has what the server says of it', async () => {
    const body = JSON.stringify({ message: 'wrong', errors: [{ field: 'name', message: 'is required' }, 'odd'] });
    const headers = { 'retry-after': '7', 'x-request-id': 'r1' };
    const failure = await failureOf(new Response(body, { status: 429, headers }));
    expect(failure).toMatchObject({ status: 429, message: 'wrong', retryAfter: 7, requestId: 'r1', mayPass: true });
    expect(failure.fields).toHaveLength(1);
    expect(failure.fault('name')).toBe('This is required.');
    expect(failure.fault('other')).toBeUndefined();
  });

  it('is made of an answer that is none of the server’s', async () => {
    const failure = await failureOf(new Response('<html>', { status: 502, statusText: 'Bad Gateway' }));
    expect(failure).toMatchObject({ status: 502, message: 'Bad Gateway', fields: [], retryAfter: undefined });
  });

  it('of the network has no status', async () => {
    const failed = arrived(Promise.reject(new TypeError('offline')));
    await expect(failed).rejects.toBeInstanceOf(Failure);
    await expect(failed).rejects.toMatchObject({ status: 0, mayPass: true });
    await expect(arrived(Promise.reject(new Failure(403, 'no')))).rejects.toMatchObject({ status: 403 });
    expect(await arrived(Promise.resolve(7))).toBe(7);
  });

  it('of the console is not the network’s, and does not pass', () => {
    const failure = asFailure(new TypeError('x is undefined'));
    expect(failure).toMatchObject({ status: OWN_FAULT, message: 'x is undefined', mayPass: false });
    expect(failureWords(failure)).toContain('console itself');
    expect(failureWords(new Failure(0, ''))).toContain('does not respond');
  });

  it('of the client keeps its status', async () => {
    const ended = new IsobarError(401, 'the session has ended');
    await expect(arrived(Promise.reject(ended))).rejects.toBeInstanceOf(Failure);
    expect(asFailure(ended)).toMatchObject({ status: 401, message: 'the session has ended', mayPass: false });
  });

  it('stays what it is', () => {
    const failure = new Failure(403, 'no');
    expect(asFailure(failure)).toBe(failure);
    expect(failure.mayPass).toBe(false);
  });
});

import { type AccessToken, TokenKeeper, sendWith } from 'isobar-client/tokens';
import createClient, { type Client, type QuerySerializerOptions } from 'openapi-fetch';
import { readAnswer, writeExact } from '../lib/exact';
import { connection } from './connection.svelte';
import type { components, paths } from './schema';
import { arrived, failureFrom, failureOf } from './failure';

export type Schemas = components['schemas'];
export type Device = Schemas['Device'];
export type FleetSummary = Schemas['DeviceSummary'];
export type NewDevice = Schemas['NewDevice'];
export type DeviceInput = Schemas['DeviceInput'];
export type DeviceSetting = Schemas['DeviceSetting'];
export type StoredEvent = Schemas['Event'];
export type LastValues = Schemas['LastValues'];
export type Notification = Schemas['Notification'];
export type Organization = Schemas['Organization'];
export type Project = Schemas['Project'];
export type Role = Schemas['Role'];
export type StatusText = Schemas['StatusText'];
export type StoredValue = Schemas['StoredValue'];
export type StorageElement = Schemas['StorageElement'];
export type User = Schemas['User'];
export type NewUser = Schemas['NewUser'];
export type ApiKey = Schemas['ApiKey'];
export type Branding = Schemas['Branding'];

/** A page of a list. */
export interface Page<T> {
  meta: Schemas['Meta'];
  data: T[];
}

/** What the session does when it ended by itself, and with each new token. `session.svelte.ts` puts it here. */
export const hooks: { ended: () => void; renewed: (token: AccessToken) => void } = {
  ended: () => undefined,
  renewed: () => undefined,
};

export const tokens = new TokenKeeper(
  renew,
  () => hooks.ended(),
  (token) => hooks.renewed(token),
);

/** Asks with the refresh cookie. 401: there is none that is good. */
async function renew(): Promise<AccessToken | null> {
  const response = await arrived(connection.fetch('/v2/auth/refreshToken', { cache: 'no-store' }));
  if (response.status === 401) return null;
  if (!response.ok) throw await failureOf(response);
  return (await arrived(response.json())) as AccessToken;
}

// Objects as `filter[name]=value`, which is how the interface has them.
const querySerializer: QuerySerializerOptions = { object: { style: 'deepObject', explode: true } };

/** The interface for a user who is signed in: every call carries the token and survives its renewal. */
export const api = exact(
  createClient<paths>({
    baseUrl: location.origin,
    querySerializer,
    bodySerializer: (body) => writeExact(body),
    fetch: (request) => sendWith(tokens, connection.fetch, request),
  }),
);

/** The interface for everybody: signing in, registering, lost passwords. */
export const open = exact(createClient<paths>({ baseUrl: location.origin, fetch: connection.fetch }));

/** Has answers read with their numbers as they were sent. Who wants the text itself says so. */
function exact(client: Client<paths>): Client<paths> {
  type Call = (path: string, init?: { parseAs?: string }) => Promise<Outcome<unknown>>;
  const calls = client as unknown as Record<string, Call>;
  for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
    const call = calls[method];
    if (!call) continue;
    calls[method] = async (path, init = {}) => {
      const outcome = await arrived(call(path, { parseAs: 'text', ...init }));
      if (init.parseAs || typeof outcome.data !== 'string') return outcome;
      return { ...outcome, data: outcome.data === '' ? undefined : readAnswer(outcome.data) };
    };
  }
  return client;
}

/** A request outside the typed client: streams, files, pictures. */
export function authorizedFetch(path: string, init: RequestInit = {}): Promise<Response> {
  return arrived(sendWith(tokens, connection.fetch, new Request(new URL(path, location.origin), init)));
}

interface Outcome<T> {
  data?: T | undefined;
  error?: unknown;
  response: Response;
}

/** The data of a call that succeeded; it asked for JSON, so that forms of the answer that are texts do not come. @throws Failure */
export async function done<T>(call: Promise<Outcome<T>>): Promise<Exclude<T, string>> {
  const { data, error, response } = await call;
  if (!response.ok) throw failureFrom(response, error);
  return data as Exclude<T, string>;
}

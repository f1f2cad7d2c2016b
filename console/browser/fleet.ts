import { ADMIN } from './server';

/** What a test makes through the interface, as a person with a program would. */
export class Fleet {
  private constructor(
    private readonly url: string,
    private readonly token: string,
    readonly organizationId: string,
  ) {}

  static async of(url: string, name = ADMIN.name, password = ADMIN.password): Promise<Fleet> {
    const tokens = await json<{ jwtToken: string }>(
      await fetch(`${url}/v2/auth/login`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ usernameOrEmail: name, password }),
      }),
    );
    const headers = { authorization: `Bearer ${tokens.jwtToken}` };
    const user = await json<{ organizationId: string }>(await fetch(`${url}/v2/auth/user`, { headers }));
    return new Fleet(url, tokens.jwtToken, user.organizationId);
  }

  async call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await fetch(`${this.url}/v2${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return json<T>(response);
  }

  /** The same, each text as it is: numbers to the digit. */
  async text(method: string, path: string, body?: string, headers: Record<string, string> = {}): Promise<string> {
    const response = await fetch(`${this.url}/v2${path}`, {
      method,
      headers: { authorization: `Bearer ${this.token}`, 'content-type': 'application/json', ...headers },
      ...(body === undefined ? {} : { body }),
    });
    const answer = await response.text();
    if (!response.ok) throw new Error(`${path}: ${response.status} ${answer}`);
    return answer;
  }

  async project(name: string, elements: Record<string, unknown> = DESIGN): Promise<string> {
    const { id } = await this.call<{ id: string }>('POST', '/projects', { name });
    await this.call('PUT', `/projects/${id}/specification`, { name, planes: { cloud: { elements } } });
    return id;
  }

  device(name: string, projectUuid: string, more: object = {}): Promise<{ id: string; token: string }> {
    return this.call('POST', '/devices', { name, projectUuid, ...more });
  }

  async event(token: string, payload: unknown, elementName = 'reading'): Promise<string> {
    const response = await fetch(`${this.url}/v2/events/device?elementName=${elementName}`, {
      method: 'POST',
      headers: { cloud: token, 'content-type': 'application/json' },
      body: JSON.stringify(payload),
    });
    return (await json<{ id: string }>(response)).id;
  }

  async user(username: string, role: string, password = 'cold-rooms-7'): Promise<{ id: string }> {
    return this.call('POST', '/users', {
      username,
      password,
      passwordConfirmation: password,
      firstName: 'Ada',
      lastName: 'Keller',
      email: `${username}@example.com`,
      company: 'Cold Chain',
      role,
      organizationId: this.organizationId,
    });
  }
}

async function json<T>(response: Response): Promise<T> {
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.url}: ${response.status} ${text}`);
  return (text === '' ? undefined : JSON.parse(text)) as T;
}

/** A cold room: readings are stored and judged, the device is told to cool, and has settings of every kind. */
export const DESIGN = {
  reading: {
    type: 'deviceEvent',
    triggers: {
      eventReceived: [
        { element: 'climate', ability: 'store' },
        { element: 'warm', ability: 'evaluate' },
        { element: 'broken', ability: 'evaluate' },
      ],
    },
  },
  climate: { type: 'storage' },
  warm: {
    type: 'condition',
    properties: { expression: 'payload.temperature > 8' },
    triggers: {
      true: [
        { element: 'cool', ability: 'send', arguments: { value: '{"target": 3, "was": payload.temperature}' } },
        {
          element: 'health',
          ability: 'setStatus',
          arguments: { status: 'payload.temperature > 20 ? critical : warning' },
        },
      ],
      false: [{ element: 'health', ability: 'setStatus', arguments: { status: 'good' } }],
    },
  },
  broken: { type: 'transform', properties: { expression: 'has(payload.wrong) ? payload.wrong / 0 : 0' } },
  cool: { type: 'cloudEvent', properties: { ttlMinutes: 600 } },
  health: { type: 'deviceMeta' },
  limit: {
    type: 'deviceSetting',
    properties: {
      title: { en: 'Alarm limit', de: 'Alarmgrenze' },
      description: {
        en: 'Above this temperature somebody is told.',
        de: 'Über dieser Temperatur wird jemand benachrichtigt.',
      },
      inputType: 'number',
      inputTypeProperties: { min: -30, max: 40 },
      defaultValue: 8,
      listOrder: 1,
    },
  },
  quiet: {
    type: 'deviceSetting',
    properties: {
      title: { en: 'Quiet at night', de: 'Nachts still' },
      inputType: 'toggle',
      defaultValue: false,
      listOrder: 2,
    },
  },
  label: {
    type: 'deviceSetting',
    properties: {
      title: { en: 'Text on the display', de: 'Text der Anzeige' },
      inputType: 'text',
      defaultValue: 'OK',
      listOrder: 3,
    },
  },
  place: {
    type: 'deviceSetting',
    properties: { title: { en: 'Place', de: 'Ort' }, inputType: 'geolocation', listOrder: 4 },
  },
};

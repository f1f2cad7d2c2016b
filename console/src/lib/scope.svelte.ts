import type { User } from '../api/client';

const KEY = 'organization';

interface Chosen {
  user: string;
  id: string;
  name: string;
}

/** The organization that is looked at, with everything beneath it. It is the user's own until another is chosen. */
class Scope {
  #chosen = $state.raw<Chosen | null>(stored());

  /** The organization that this user looks at. */
  of(user: User): { id: string; name: string; isOwn: boolean } {
    const chosen = this.#chosen;
    if (chosen?.user === user.id && chosen.id !== user.organizationId) {
      return { id: chosen.id, name: chosen.name, isOwn: false };
    }
    return { id: user.organizationId, name: user.organizationName, isOwn: true };
  }

  choose(user: User, organization: { id: string; name: string }): void {
    this.#chosen = { user: user.id, id: organization.id, name: organization.name };
    try {
      localStorage.setItem(KEY, JSON.stringify(this.#chosen));
    } catch {
      // Without storage it holds for this visit.
    }
  }

  /** Back to the user's own, when the chosen one is gone or out of reach. */
  reset(): void {
    this.#chosen = null;
    try {
      localStorage.removeItem(KEY);
    } catch {
      // Nothing was kept.
    }
  }
}

function stored(): Chosen | null {
  try {
    const chosen = JSON.parse(localStorage.getItem(KEY) ?? 'null') as Partial<Chosen> | null;
    const { user, id, name } = chosen ?? {};
    return typeof user === 'string' && typeof id === 'string' && typeof name === 'string' ? { user, id, name } : null;
  } catch {
    return null;
  }
}

export const scope = new Scope();

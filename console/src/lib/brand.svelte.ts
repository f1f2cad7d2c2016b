import { type BrandStep, brandsAlong, logoOf } from '../api/brandings';
import { type Accent, accentIn, hexColour } from './colour';

/** The colour that was shown last, so that the next visit does not begin in another. */
const KEY = 'accent';

/** How the console looks: in the colours and with the logo of the organization that is looked at, or of the nearest above it. */
class Brand {
  accent = $state<string | null>(null);
  /** The address of the logo, within this page. */
  logo = $state<string | null>(null);
  /** Whose logo it is. */
  name = $state('');
  #organizationId = '';
  #stop = new AbortController();

  /** Shows the brand of an organization. What cannot be read leaves the console in its own colours. */
  async follow(organizationId: string): Promise<void> {
    if (this.#organizationId === '' && organizationId !== '') this.#showAccent(stored(organizationId));
    this.#organizationId = organizationId;
    this.#stop.abort();
    this.#stop = new AbortController();
    const { signal } = this.#stop;
    try {
      const steps = await brandsAlong(organizationId, signal);
      if (signal.aborted) return;
      this.#showAccent(steps.find(({ brand }) => brand.accent)?.brand.accent ?? null);
      store(organizationId, this.accent);
      const owner = steps.find(({ brand }) => brand.hasLogo);
      const picture = owner ? await logoOf(owner.id, signal) : null;
      if (!signal.aborted) this.#showLogo(owner, picture);
    } catch {
      // A page that stands in other colours is better than none.
    }
  }

  /** Reads it again, after somebody has changed it. */
  async reload(): Promise<void> {
    if (this.#organizationId !== '') await this.follow(this.#organizationId);
  }

  /** Back to the console's own, for who is not signed in. */
  end(): void {
    this.#stop.abort();
    this.#organizationId = '';
    this.#showAccent(null);
    this.#showLogo(undefined, null);
  }

  #showAccent(accent: string | null): void {
    this.accent = accent;
    const { style } = document.documentElement;
    for (const [name, value] of Object.entries(accentProperties(accent))) {
      if (value === null) style.removeProperty(name);
      else style.setProperty(name, value);
    }
  }

  #showLogo(owner: BrandStep | undefined, picture: Blob | null): void {
    if (this.logo) URL.revokeObjectURL(this.logo);
    this.logo = picture ? URL.createObjectURL(picture) : null;
    this.name = owner?.name ?? '';
  }
}

/** The properties of `tokens.css` that an accent sets; without one, those to be taken away. */
export function accentProperties(accent: string | null): Record<string, string | null> {
  const light = accent === null ? null : accentIn('light', accent);
  const dark = accent === null ? null : accentIn('dark', accent);
  const both = (member: keyof Omit<Accent, 'isAdjusted'>): string | null =>
    light && dark ? `light-dark(${light[member]}, ${dark[member]})` : null;
  return {
    '--accent': both('accent'),
    '--accent-strong': both('strong'),
    '--accent-soft': both('soft'),
    '--on-accent': both('on'),
    '--contour': both('accent'),
  };
}

function stored(organizationId: string): string | null {
  try {
    const [id, accent] = (localStorage.getItem(KEY) ?? '').split(' ');
    return id === organizationId ? hexColour(accent) : null;
  } catch {
    return null;
  }
}

function store(organizationId: string, accent: string | null): void {
  try {
    if (accent) localStorage.setItem(KEY, `${organizationId} ${accent}`);
    else localStorage.removeItem(KEY);
  } catch {
    // Without storage the next visit begins in the console's own colours.
  }
}

export const brand = new Brand();

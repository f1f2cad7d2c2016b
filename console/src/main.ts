import { mount } from 'svelte';
import './styles/tokens.css';
import './styles/base.css';
import { connection } from './api/connection.svelte';
import { session } from './api/session.svelte';
import { showHiddenSigns } from './lib/hiddenSigns';
import { takeLinks } from './lib/links';
import { isUnfetched, wantedPlace } from './lib/wanted.svelte';
import { getLocale } from './paraglide/runtime';
import App from './App.svelte';

/** Once in so long, lest a file that stays away reloads the page for ever. */
const RELOADED_AFTER_MS = 60_000;

document.documentElement.lang = getLocale();
showHiddenSigns(document);
takeLinks();
void session.resume();

// A page that cannot be fetched is one of an older console, and the newer one has been installed meanwhile; or the server is away,
// and the page is opened as soon as it is back.
addEventListener('unhandledrejection', (event) => {
  if (!isUnfetched(event.reason)) return;
  event.preventDefault();
  void reloadWhenThere();
});

async function reloadWhenThere(): Promise<void> {
  await connection.look();
  const wasLost = connection.hasJustReturned;
  const last = Number(sessionStorage.getItem('reloaded') ?? 0);
  // After a connection that was lost the file is there again: that ends by itself.
  if (!wasLost && Date.now() - last < RELOADED_AFTER_MS) return;
  sessionStorage.setItem('reloaded', String(Date.now()));
  if (wasLost) connection.tellNextPage();
  const place = new URL(wantedPlace() || location.href, location.origin);
  // Going back has changed the address already.
  if (place.pathname === location.pathname) location.reload();
  else location.assign(place);
}

const target = document.getElementById('app');
if (target) mount(App, { target });

import { createRouter } from 'sv-router';
import { session } from './api/session.svelte';
import { arrived, want } from './lib/wanted.svelte';
import Frame from './pages/Frame.svelte';
import NotFound from './pages/NotFound.svelte';

/** Pages that need no session. `App` shows the sign-in page at every other address while nobody is signed in. */
export const PUBLIC: readonly string[] = ['/register', '/forgot', '/reset', '/verified', '/wall'];

/** Every page of the console, and its address. What is not needed for the first one is fetched when it is opened. */
export const { navigate, route } = createRouter({
  layout: Frame,
  // The router says nothing of a page that cannot be fetched: what has begun and has not ended is known here.
  hooks: {
    beforeLoad: ({ pathname, search }) => want(pathname, search),
    afterLoad: arrived,
  },
  // Not before somebody is signed in: the sign-in page has no use of it.
  '/': () => session.expected.then(() => import('./pages/Overview.svelte')),
  '/devices': () => import('./pages/Devices.svelte'),
  '/devices/import': () => import('./pages/DeviceImport.svelte'),
  '/devices/:id': () => import('./pages/Device.svelte'),
  '/devices/:id/:tab': () => import('./pages/Device.svelte'),
  '/alarms': () => import('./pages/Alarms.svelte'),
  '/dashboards': () => import('./pages/Dashboards.svelte'),
  '/projects': () => import('./pages/Projects.svelte'),
  '/projects/:id/design': () => import('./pages/Design.svelte'),
  '/projects/:id/versions': () => import('./pages/Versions.svelte'),
  '/integrations': () => import('./pages/Integrations.svelte'),
  '/integrations/new': () => import('./pages/IntegrationWizard.svelte'),
  '/organizations': () => import('./pages/Organizations.svelte'),
  '/organizations/:id': () => import('./pages/Organization.svelte'),
  '/organizations/:id/:tab': () => import('./pages/Organization.svelte'),
  '/users': () => import('./pages/Users.svelte'),
  '/users/:id': () => import('./pages/User.svelte'),
  '/profile': () => import('./pages/Profile.svelte'),
  '/profile/:tab': () => import('./pages/Profile.svelte'),
  '/about': () => import('./pages/About.svelte'),
  '/notifications': () => import('./pages/Notifications.svelte'),
  '/start': () => import('./pages/Start.svelte'),
  '/register': () => import('./pages/auth/Register.svelte'),
  '/forgot': () => import('./pages/auth/Forgot.svelte'),
  '/reset': () => import('./pages/auth/Reset.svelte'),
  '/verified': () => import('./pages/auth/Verified.svelte'),
  '/wall': () => import('./pages/Wall.svelte'),
  '*': NotFound,
});

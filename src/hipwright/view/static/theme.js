// Sets the chosen colour scheme before the page is drawn.
"use strict";
try {
  const theme = localStorage.getItem("hipwright-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // no storage here: the system's scheme is taken
}

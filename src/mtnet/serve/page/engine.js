// What learns and predicts: the server. The static page has another file of this name.

const form = document.getElementById("token-form");
let token = sessionStorage.getItem("mtnet-token") || "";

form.addEventListener("submit", (event) => {
  event.preventDefault();
  token = document.getElementById("token").value.trim();
  sessionStorage.setItem("mtnet-token", token);
  location.reload();
});

export async function call(method, path, body) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Error("The server does not answer.");
  }
  if (response.status === 401) form.hidden = false;
  if (!response.ok) {
    const text = await response.json().catch(() => ({ detail: response.statusText }));
    throw new Error(text.detail);
  }
  return response;
}

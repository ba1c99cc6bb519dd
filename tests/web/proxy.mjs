// A proxy in front of a collector, as kubectl proxy with an API server is: the page is below the
// path of a Service, the header `authorization` is the API server's own and is never passed on, and
// some proxies wait for the end of an answer before they pass it on. Every second request for data
// reaches a standby.
import http from "node:http";
import https from "node:https";

/** Path of the collector's Service below an API server. */
export const SERVICE_PATH = "/api/v1/namespaces/virtfleet/services/https:virtfleet-collector:10912/proxy/";

/** Starts a proxy for `target`. `holds`: it passes answers on when they have ended. */
export async function startProxy(target, { holds }) {
  let requests = 0;
  let denied = 0;
  const server = http.createServer((request, response) => {
    if (!request.url.startsWith(SERVICE_PATH)) {
      response.writeHead(404).end("no such path");
      return;
    }
    requests += 1;
    if (request.url.startsWith(`${SERVICE_PATH}api/`) && requests % 2 === 1) {
      const error = { code: "not_leading", message: "this collector is a standby", remedy: "" };
      response.writeHead(503, { "content-type": "application/json" }).end(JSON.stringify({ error }));
      return;
    }
    const { authorization, connection, host, ...headers } = request.headers;
    if (authorization) denied += 1;
    const url = new URL(request.url.slice(SERVICE_PATH.length - 1), target);
    // The certificate of the test's collector is not that of a public authority.
    const sent = https.request(url, { method: request.method, headers, rejectUnauthorized: false }, (answer) => {
      if (!holds) {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
        return;
      }
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => {
        response.writeHead(answer.statusCode, answer.headers);
        response.end(Buffer.concat(parts));
      });
    });
    sent.on("error", () => response.destroy());
    response.on("close", () => sent.destroy());
    request.pipe(sent);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    requests: () => requests,
    denied: () => denied,
    stop: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

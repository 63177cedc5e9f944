// Shows the document of this very server. What is pasted under "Authorize" stays in this page until it is left.

// Swagger UI fills a parameter's example in as if somebody had chosen it: what may be left out has to start empty.
const withoutChoices = (document) => {
  const items = Object.values(document.paths).flatMap((item) => Object.values(item));
  const parameters = items.flatMap((operation) => operation.parameters ?? []);
  for (const parameter of [...parameters, ...Object.values(document.components.parameters)]) {
    if (!parameter.required && "example" in parameter) {
      parameter.description += `\n\nFor example \`${parameter.example}\`.`;
      delete parameter.example;
    }
  }
  return document;
};

window.onload = () => {
  const address = new URL("api/openapi.json", window.location.href).href;
  window.ui = SwaggerUIBundle({
    url: address,
    dom_id: "#reference",
    deepLinking: true,
    docExpansion: "list",
    filter: true,
    displayRequestDuration: true,
    showCommonExtensions: true,
    defaultModelsExpandDepth: 0,
    // The badge that asks a server of others whether the document is valid.
    validatorUrl: null,
    responseInterceptor: (response) => {
      if (response.url === address && response.ok) {
        response.text = JSON.stringify(withoutChoices(JSON.parse(response.text)));
      }
      return response;
    },
  });
};

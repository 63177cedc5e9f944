// Shows the OpenAPI document of this server. Credentials under "Authorize" are lost when the page is closed.

// Swagger UI prefills parameters with their examples. Moves the example of an optional parameter to its description,
// so that the parameter starts empty.
const withoutOptionalExamples = (document) => {
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
    // Disables the badge that sends the document to an external validator.
    validatorUrl: null,
    responseInterceptor: (response) => {
      if (response.url === address && response.ok) {
        response.text = JSON.stringify(withoutOptionalExamples(JSON.parse(response.text)));
      }
      return response;
    },
  });
};

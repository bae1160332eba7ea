# A server of embeddings:
#   docker build -t selfsent .
#   docker run -p 8080:8080 -v "$PWD/runs:/runs:ro" -e SELFSENT_API_KEY=... selfsent /runs/tickets/model
FROM python:3.11-slim
WORKDIR /selfsent
COPY . .
# torch's CPU build, from PyTorch's own index: the plain package brings several gigabytes of CUDA.
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu torch \
    && pip install --no-cache-dir -c constraints.txt ".[serve]" \
    && useradd --create-home selfsent
USER selfsent
EXPOSE 8080
ENTRYPOINT ["selfsent", "serve", "--host", "0.0.0.0"]

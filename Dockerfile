# The server. `docker build --tag trinity-server .`, then
# docker run --publish 127.0.0.1:8080:8080 --volume ./models:/models:ro trinity-server --model /models/model.gguf
FROM python:3.13-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY trinity trinity
COPY kernels kernels
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[serve]" && rm -rf build
# Kernels are compiled while the image is built. Omit this step for containers that run on another
# type of CPU: the first start then compiles them.
ENV TRINITY_CACHE_DIR=/var/cache/trinity
WORKDIR /
RUN trinity warmup && useradd --system trinity && chown -R trinity /var/cache/trinity
USER trinity
EXPOSE 8080
HEALTHCHECK --start-period=120s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/health')"]
ENTRYPOINT ["trinity", "serve", "--host", "0.0.0.0"]
